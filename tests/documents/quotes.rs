// SPDX-License-Identifier: Apache-2.0
//! What documents say word for word of others: texts of the program, and versions that tests run with.

use std::fs;
use std::path::Path;

use super::ROOT;

/// All sources below a folder, without what stands before the text of a continued line.
fn sources(folder: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            text += &sources(&path);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let lines = fs::read_to_string(&path).unwrap();
            text += &lines.split("\\\n").map(str::trim_start).collect::<String>();
        }
    }
    text
}

/// The spans of code in the columns of a table that has such a heading.
fn quoted(document: &str) -> Vec<String> {
    let mut quoted = Vec::new();
    let mut columns: Option<Vec<usize>> = None;
    for line in document.lines() {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").collect();
        match &columns {
            _ if !line.starts_with('|') => columns = None,
            None => {
                let is_quoted = |cell: &str| ["reason", "the message says", "what it says"].contains(&cell.trim());
                columns = Some(cells.iter().enumerate().filter(|(_, cell)| is_quoted(cell)).map(|(index, _)| index).collect());
            }
            Some(columns) => {
                let cells = columns.iter().filter_map(|index| cells.get(*index));
                quoted.extend(cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned));
            }
        }
    }
    quoted
}

#[test]
fn texts_that_troubleshooting_has_are_the_programs() {
    let document = fs::read_to_string(Path::new(ROOT).join("docs/troubleshooting.md")).unwrap();
    let program: String = ["src", "bgp/src"].iter().map(|folder| sources(&Path::new(ROOT).join(folder))).collect();
    let quoted = quoted(&document);
    assert!(quoted.len() >= 40, "only {} texts found", quoted.len());
    let fragments = quoted.iter().flat_map(|text| text.split("...").map(str::trim).map(move |fragment| (text, fragment)));
    let strangers: Vec<_> = fragments.filter(|(_, fragment)| !program.contains(fragment)).collect();
    assert!(strangers.is_empty(), "the program does not say: {strangers:#?}");
}

#[test]
fn versions_in_the_support_matrix_are_those_that_tests_run_with() {
    let read = |path: &str| fs::read_to_string(Path::new(ROOT).join(path)).unwrap();
    let version = |file: &str, module: &str| {
        let text = read(file);
        let line = text.lines().find(|line| line.trim().starts_with(&format!("{module} v"))).unwrap();
        line.split_whitespace().nth(1).unwrap().trim_start_matches('v').to_owned()
    };
    let matrix = read("docs/support-matrix.md");
    assert!(matrix.contains(&format!("| {} |", version("tests/apiserver/go.mod", "k8s.io/kubernetes"))), "Kubernetes");
    assert!(matrix.contains(&format!("Helm {}", version("tests/helm/go.mod", "helm.sh/helm/v3"))), "Helm");
    let least = read("charts/vipherald/Chart.yaml");
    let least = least.lines().find_map(|line| line.strip_prefix("kubeVersion: '>=")).unwrap().trim_end_matches(".0-0'").to_owned();
    assert!(matrix.contains(&format!("| {least} and newer |")), "what the chart asks for");
    let table = read("docs/interoperability.md");
    let peers = table.lines().find(|line| line.starts_with("| | ")).unwrap();
    for peer in peers.trim_matches('|').split('|').map(str::trim).filter(|peer| !peer.is_empty()) {
        assert!(matrix.contains(peer), "{peer}");
    }
}
