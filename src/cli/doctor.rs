// SPDX-License-Identifier: Apache-2.0
//! `vipherald doctor`: a table of checks with what was found and what is to be done, or a document of the same. Exit code 1 where there is a problem.

use std::path::PathBuf;
use std::time::SystemTime;

use clap::Args;
use serde::Serialize;

use super::show::write;
use super::table::table;
use super::{Failure, Output, block_on, load, print};
use crate::config::process_environment;
use crate::doctor::{Finding, State, examine, observe};
use crate::status::{API_VERSION, Envelope};

#[derive(Args, Debug)]
pub(super) struct Doctor {
    /// The configuration file: what it needs is checked too, and what nothing needs is no problem
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The form of the output [default: a table]
    #[arg(short, long, value_name = "FORM")]
    output: Option<Output>,
}

pub(super) fn doctor(Doctor { config, output }: Doctor) -> Result<(), Failure> {
    let config = config.map(|file| load(&file)).transpose()?;
    let node = block_on("doctor", observe(config.as_ref()))?;
    let findings = examine(&node, config.as_ref());
    print(&match output {
        None | Some(Output::Wide) => text(&findings),
        Some(form) => {
            let environment = process_environment();
            let named = || environment.get("NODE_NAME").cloned().unwrap_or_default();
            let envelope = Envelope {
                api_version: API_VERSION.to_owned(),
                instance: config.as_ref().map_or_else(|| "vipherald".to_owned(), |config| config.instance.clone()),
                node: config.as_ref().map_or_else(named, |config| config.node_name.clone()),
                observed_at: SystemTime::now().into(),
                warnings: Vec::new(),
            };
            write(envelope, Content { findings: &findings }, form)?
        }
    })?;
    match findings.iter().filter(|finding| finding.state == State::Problem).count() {
        0 => Ok(()),
        1 => Err(Failure::Found("there is 1 problem".to_owned())),
        problems => Err(Failure::Found(format!("there are {problems} problems"))),
    }
}

#[derive(Serialize)]
struct Content<'a> {
    findings: &'a [Finding],
}

fn text(findings: &[Finding]) -> String {
    let row = |finding: &Finding| {
        let remedy = finding.remedy.as_ref().map(|remedy| format!(" -> {remedy}")).unwrap_or_default();
        vec![finding.check.clone(), finding.state.as_str().to_owned(), format!("{}{remedy}", finding.detail)]
    };
    table(&["CHECK", "STATE", "DETAIL"], &findings.iter().map(row).collect::<Vec<_>>())
}
