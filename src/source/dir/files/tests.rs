// SPDX-License-Identifier: Apache-2.0
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

struct Place {
    dir: TempDir,
    state: TempDir,
    files: Files,
    now: Instant,
}

impl Place {
    fn new() -> Self {
        let (dir, state) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let files = Files::new(dir.path().into(), Kept::below(Some(state.path())));
        Self { dir, state, files, now: Instant::now() }
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.dir.path().join(name), text).unwrap();
    }

    /// Scans, reads what is to be read, and says which files those were.
    fn scan(&mut self, unannounced: Unannounced) -> Vec<String> {
        let names = self.files.scan(unannounced, self.now).unwrap();
        for name in &names {
            let content = self.files.read(name);
            self.files.take(name.clone(), content, self.now);
        }
        self.files.finish_scan();
        self.files.save();
        names.into_iter().map(|name| name.into_string().unwrap()).collect()
    }

    /// The same as a process that starts now.
    fn restart(&mut self) {
        self.files = Files::new(self.dir.path().into(), Kept::below(Some(self.state.path())));
        self.scan(Unannounced::Read);
    }

    fn later(&mut self, time: Duration) {
        self.now += time;
        self.files.believe_gone(self.now);
    }

    /// The names in force, a `!` where the snapshot is not complete, and the messages.
    fn state(&self) -> (String, Vec<String>) {
        let snapshot = self.files.snapshot();
        let names: Vec<_> = snapshot
            .nodes
            .iter()
            .map(|(name, node)| {
                let version = node.metadata.labels.as_ref().and_then(|labels| labels.get("v")).map_or("", String::as_str);
                format!("{}{version}", name.name)
            })
            .collect();
        let complete = if snapshot.complete { "" } else { "!" };
        (format!("{}{complete}", names.join(" ")), snapshot.rejections.into_iter().map(|rejection| rejection.message).collect())
    }

    fn names(&self) -> String {
        self.state().0
    }
}

fn node(name: &str, version: u32) -> String {
    format!("apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{v: '{version}'}}}}\n")
}

const BAD_B: &str = "apiVersion: v1\nkind: Node\nmetadata: {name: b}\nspec: 5\n";
const NO_YAML: &str = "a: [\n";

#[test]
fn a_faulty_object_keeps_its_own_last_good_content() {
    let mut place = Place::new();
    place.write("f.yaml", [node("a", 1), node("b", 1), node("c", 1)].join("---\n"));
    place.scan(Unannounced::Read);
    assert_eq!(place.names(), "a1 b1 c1");
    place.write("f.yaml", [node("a", 22), BAD_B.into(), node("d", 22)].join("---\n"));
    place.scan(Unannounced::Read);
    let in_force = "a22 b1 d22".to_owned();
    let message =
        "f.yaml, document 2, line 8: spec: invalid type: integer `5`, expected NodeSpec; its last good content stays in force".to_owned();
    assert_eq!(place.state(), (in_force.clone(), vec![message.clone()]));
    // It survives a start: the kept content has it.
    place.restart();
    assert_eq!(place.state(), (in_force, vec![message]));
}

#[test]
fn each_fault_of_an_object_says_what_is_in_force_and_the_snapshot_knows_what_is_kept() {
    let ingress = |algo: &str, end: u32| {
        format!(
            "---\napiVersion: routing.ericingress.ericsson.com/v1alpha1\nkind: EricIngress\nmetadata: {{name: e}}\nspec: {{virtualServiceIP: 10.0.0.7, \
             backends: {{name: b, config: [{{algo: {algo}, portRange: {{vipPortRange: {{start: 1, end: {end}}}, svcPortRange: {{start: 1, end: 1}}}}}}]}}}}\n"
        )
    };
    let mut place = Place::new();
    let mut kept = |text: String| {
        place.write("f.yaml", text);
        place.scan(Unannounced::Read);
        let snapshot = place.files.snapshot();
        let kept: Vec<String> = snapshot.kept.iter().map(ToString::to_string).collect();
        (kept, snapshot.rejections.into_iter().map(|rejection| rejection.message).collect::<Vec<_>>())
    };
    assert_eq!(kept(ingress("rr", 1) + "---\n" + &node("a", 1)), (vec![], vec![]));
    let (objects, messages) = kept(ingress("RR", 70_000) + "---\n" + &node("a", 22));
    assert_eq!(objects, ["EricIngress default/e"]);
    assert!(
        messages.len() == 2 && messages.iter().all(|message| message.ends_with("; its last good content stays in force")),
        "{messages:?}"
    );
    let (objects, messages) = kept(ingress("RR", 70_000) + "---\n" + NO_YAML);
    assert_eq!((objects, messages.len()), (vec!["Node a".to_owned(), "EricIngress default/e".to_owned()], 3));
    assert!(messages.iter().all(|message| message.ends_with(" stays in force")), "{messages:?}");
    assert_eq!(kept(ingress("rr", 1)), (vec![], vec![]));
}

#[test]
fn a_file_that_is_no_yaml_keeps_all_of_its_last_good_content() {
    let mut place = Place::new();
    place.write("f.yaml", [node("a", 1), node("b", 1)].join("---\n"));
    place.write("g.yaml", node("g", 1));
    place.scan(Unannounced::Read);
    place.write("f.yaml", [node("a", 22), NO_YAML.into(), node("c", 22)].join("---\n"));
    place.write("g.yaml", node("g", 22));
    place.scan(Unannounced::Read);
    let message = "f.yaml, document 2, line 5: unclosed bracket '['; the last good content of the file stays in force";
    assert_eq!(place.state(), ("a1 b1 g22".into(), vec![message.into()]));
    place.restart();
    assert_eq!(place.state(), ("a1 b1 g22".into(), vec![message.into()]));
    place.write("f.yaml", "");
    place.scan(Unannounced::Read);
    let message = "f.yaml: the file is empty; delete it to remove its objects; the last good content of the file stays in force";
    assert_eq!(place.state(), ("a1 b1 g22".into(), vec![message.into()]));
    place.write("f.yaml", "# nothing\n");
    place.scan(Unannounced::Read);
    assert_eq!(place.state(), ("g22".into(), vec![]));
}

const WORKLOAD: &str = "apiVersion: apps/v1\nkind: DaemonSet\nmetadata:\n  name: vipherald\n  namespace: vip\nspec:\n  \
                        selector: {matchLabels: {app: vipherald}}\n  template:\n    metadata: {labels: {app: vipherald}}\n    spec: {containers: []}\n";

#[test]
fn wherever_a_file_is_cut_its_last_object_is_not_taken_for_gone() {
    let before = format!("{}---\n", node("a", 1));
    let whole = format!("{before}{WORKLOAD}");
    let mut place = Place::new();
    for cut in before.len() + 1..whole.len() {
        place.write("f.yaml", &whole);
        place.scan(Unannounced::Read);
        let text = whole.get(..cut).unwrap();
        place.write("f.yaml", text);
        place.scan(Unannounced::Read);
        let has_workload = |place: &Place| place.files.snapshot().daemon_sets.keys().any(|found| found.name == "vipherald");
        assert!(has_workload(&place), "{text}");
        assert_eq!(place.names(), "a1", "{text}");
        place.restart();
        assert!(has_workload(&place), "after a start: {text}");
        let mut cold = Place::new();
        cold.write("f.yaml", text);
        cold.scan(Unannounced::Read);
        assert!(has_workload(&cold) || !cold.files.snapshot().complete, "at the first start: {text}");
    }
    place.write("f.yaml", &before);
    place.scan(Unannounced::Read);
    assert_eq!((place.files.snapshot().daemon_sets.len(), place.state()), (0, ("a1".into(), vec![])), "it was taken out");
}

#[test]
fn a_document_of_another_kind_keeps_nothing_unless_it_may_be_the_beginning_of_what_is_missing() {
    let with = |document: &str| {
        let mut place = Place::new();
        place.write("f.yaml", format!("{}---\n{WORKLOAD}", node("a", 1)));
        place.scan(Unannounced::Read);
        place.write("f.yaml", format!("{}---\n{document}", node("a", 1)));
        place.scan(Unannounced::Read);
        let snapshot = place.files.snapshot();
        (snapshot.daemon_sets.len(), place.state().1.concat())
    };
    let (kept, message) = with("apiVersion: apps/v1\nkind: Dae");
    assert!(
        kept == 1 && message.ends_with("; it may be the beginning of DaemonSet vip/vipherald, whose last good content stays in force"),
        "{message}"
    );
    assert_eq!(with("apiVersion: apps/v1\nkind: D\nmetadata: {name: vipherald}").0, 1);
    assert_eq!(with("apiVersion: app\nkind: DaemonSet").0, 1);
    for other in
        ["apps/v1\nkind: Deployment\nmetadata: {name: vipherald}", "v1\nkind: ConfigMap", "apps/v1\nkind: Dae\nmetadata: {name: other}"]
    {
        assert_eq!(with(&format!("apiVersion: {other}")).0, 0, "{other}");
    }
}

#[test]
fn a_bad_file_at_a_cold_start_leaves_the_rest_in_force_and_the_snapshot_incomplete() {
    let mut place = Place::new();
    place.write("f.yaml", [node("a", 1), NO_YAML.into()].join("---\n"));
    place.write("g.yaml", node("g", 1));
    place.write("h.yaml", BAD_B);
    place.scan(Unannounced::Read);
    let messages = vec![
        "h.yaml, document 1, line 4: spec: invalid type: integer `5`, expected NodeSpec; it is not in force".into(),
        "f.yaml, document 2, line 5: unclosed bracket '['; what can be read of the file is in force".into(),
    ];
    assert_eq!(place.state(), ("a1 g1!".into(), messages));
    place.write("f.yaml", [node("a", 1), node("z", 1)].join("---\n"));
    place.scan(Unannounced::Read);
    assert_eq!(place.names(), "a1 g1 z1!");
    fs::remove_file(place.dir.path().join("h.yaml")).unwrap();
    place.scan(Unannounced::Read);
    place.later(GONE_GRACE);
    assert_eq!(place.state(), ("a1 g1 z1".into(), vec![]));
}

#[test]
fn a_file_that_is_bad_when_it_first_appears_leaves_the_snapshot_complete() {
    let mut place = Place::new();
    place.scan(Unannounced::Read);
    assert_eq!(place.names(), "");
    place.write("f.yaml", BAD_B);
    place.scan(Unannounced::Read);
    assert_eq!(place.names(), "");
    assert_eq!(place.state().1.len(), 1);
}

#[test]
fn a_file_that_is_being_written_at_the_start_is_what_was_kept_of_it() {
    let mut place = Place::new();
    place.write("f.yaml", node("a", 1));
    place.scan(Unannounced::Read);
    for (state, in_force) in [(Some(place.state.path().to_owned()), "a1"), (None, "!")] {
        let mut files = Files::new(place.dir.path().into(), Kept::below(state.as_deref()));
        let names = files.scan(Unannounced::Read, place.now).unwrap();
        names.iter().for_each(|name| files.expect(name));
        files.finish_scan();
        place.files = files;
        assert_eq!(place.names(), in_force);
        // Read in full at last.
        place.scan(Unannounced::Read);
        assert_eq!(place.names(), "a1");
    }
}

#[test]
fn what_was_kept_of_a_file_that_is_gone_is_forgotten() {
    let mut place = Place::new();
    place.write("f.yaml", node("a", 1));
    place.write("g.yaml", node("b", 1));
    place.scan(Unannounced::Read);
    assert_eq!(place.files.kept.files().len(), 2);
    fs::remove_file(place.dir.path().join("g.yaml")).unwrap();
    place.restart();
    assert_eq!(place.files.kept.files(), ["f.yaml"]);
    place.write("g.yaml", NO_YAML);
    place.restart();
    assert_eq!(place.names(), "a1!");
}

#[test]
fn an_object_in_two_files_counts_once() {
    let mut place = Place::new();
    place.write("b.yaml", [node("a", 1), node("c", 1)].join("---\n"));
    place.write("a.yaml", [node("a", 22), node("a", 333)].join("---\n"));
    place.scan(Unannounced::Read);
    let messages = vec![
        "a.yaml, document 2, line 4: stands there already; the first one is in force".into(),
        "is in a.yaml and in b.yaml; the first one is in force".into(),
    ];
    assert_eq!(place.state(), ("a22 c1".into(), messages));
    fs::remove_file(place.dir.path().join("a.yaml")).unwrap();
    place.scan(Unannounced::Read);
    place.later(GONE_GRACE);
    assert_eq!(place.state(), ("a1 c1".into(), vec![]));
}

#[test]
fn a_file_is_gone_only_after_a_while() {
    let mut place = Place::new();
    place.write("f.yaml", node("a", 1));
    place.scan(Unannounced::Read);
    let path = place.dir.path().join("f.yaml");
    fs::remove_file(&path).unwrap();
    assert!(!place.files.note("f.yaml".as_ref(), Event::Gone, place.now));
    assert_eq!(place.files.deadline(), Some(place.now + GONE_GRACE));
    place.later(GONE_GRACE / 2);
    assert_eq!(place.names(), "a1");
    // Written anew in time: nothing was ever missing.
    place.write("f.yaml", node("a", 22));
    assert!(!place.files.note("f.yaml".as_ref(), Event::Created, place.now));
    place.later(GONE_GRACE);
    assert_eq!(place.names(), "a1");
    assert!(place.files.note("f.yaml".as_ref(), Event::Whole, place.now));
    place.scan(Unannounced::Read);
    assert_eq!(place.names(), "a22");
    // Gone for good.
    fs::remove_file(&path).unwrap();
    place.scan(Unannounced::ReadOnceStill);
    place.later(GONE_GRACE);
    assert_eq!(place.names(), "");
    assert_eq!(place.files.deadline(), None);
}

#[test]
fn what_moves_to_another_file_is_there_at_once_and_never_twice() {
    let mut place = Place::new();
    place.write("a.yaml", [node("a", 1), node("b", 1)].join("---\n"));
    place.scan(Unannounced::Read);
    fs::remove_file(place.dir.path().join("a.yaml")).unwrap();
    place.write("z.yaml", node("a", 22));
    place.files.note("a.yaml".as_ref(), Event::Gone, place.now);
    place.scan(Unannounced::Read);
    assert_eq!(place.state(), ("a22 b1".into(), vec![]));
    place.later(GONE_GRACE);
    assert_eq!(place.state(), ("a22".into(), vec![]));
}

#[test]
fn a_scan_does_not_read_what_is_being_written() {
    let mut place = Place::new();
    place.write("f.yaml", node("a", 1));
    place.scan(Unannounced::Read);
    place.write("f.yaml", NO_YAML);
    assert!(!place.files.note("f.yaml".as_ref(), Event::Writing, place.now));
    for _ in 0..6 {
        assert_eq!(place.scan(Unannounced::Read), [""; 0]);
        place.later(ABANDONED / 6);
    }
    // Its writer has forgotten it.
    assert_eq!(place.scan(Unannounced::Read), ["f.yaml"]);
}

#[test]
fn a_change_without_an_event_is_read_once_it_keeps_still() {
    let mut place = Place::new();
    place.write("f.yaml", node("a", 1));
    place.scan(Unannounced::Read);
    place.write("f.yaml", node("a", 11));
    assert_eq!(place.scan(Unannounced::ReadOnceStill), [""; 0]);
    assert!(place.files.is_unsettled());
    place.write("f.yaml", node("a", 111));
    assert_eq!(place.scan(Unannounced::ReadOnceStill), [""; 0]);
    assert_eq!(place.scan(Unannounced::ReadOnceStill), ["f.yaml"]);
    assert!(!place.files.is_unsettled());
    assert_eq!(place.scan(Unannounced::ReadOnceStill), [""; 0]);
    assert_eq!(place.names(), "a111");
}

#[test]
fn a_lost_directory_takes_nothing_with_it_and_is_believed_when_it_is_back_with_something() {
    let mut place = Place::new();
    place.write("f.yaml", node("a", 1));
    place.write("g.yaml", node("b", 1));
    place.scan(Unannounced::Read);
    place.files.lose("its file system was unmounted");
    let message = |reason| format!("the directory cannot be read: {reason}; what was last read of it stays in force");
    assert_eq!(place.state(), ("a1 b1!".into(), vec![message("its file system was unmounted")]));
    fs::remove_file(place.dir.path().join("f.yaml")).unwrap();
    fs::remove_file(place.dir.path().join("g.yaml")).unwrap();
    place.scan(Unannounced::Read);
    place.later(RETURN_GRACE * 2);
    assert_eq!(place.state(), ("a1 b1!".into(), vec![message("it is empty since it came back; the first manifest in it is believed")]));
    place.write("f.yaml", node("a", 22));
    place.scan(Unannounced::Read);
    assert_eq!(place.state(), ("a22 b1".into(), vec![]));
    place.later(RETURN_GRACE);
    assert_eq!(place.names(), "a22");
}

#[test]
fn what_is_no_text_file_is_told() {
    let mut place = Place::new();
    let path = |name: &str| place.dir.path().join(name);
    place.write("a.yaml", [node("a", 1).as_bytes(), b"# \xff\n"].concat());
    nix::unistd::mkfifo(&path("b.yaml"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::os::unix::fs::symlink("nowhere.yaml", path("c.yaml")).unwrap();
    fs::create_dir(path("d.yaml")).unwrap();
    fs::File::create(path("e.yaml")).unwrap().set_len(MAX_BYTES + 1).unwrap();
    std::os::unix::fs::symlink("d.yaml", path("f.yaml")).unwrap();
    for name in [".g.yaml", "g.yaml~", "g.yaml.swp", "g.txt", "..data"] {
        place.write(name, NO_YAML);
    }
    place.scan(Unannounced::Read);
    let messages = [
        "a.yaml: it is not UTF-8 from byte 67 on; nothing of the file is in force",
        "b.yaml: it is no regular file; nothing of the file is in force",
        "c.yaml: it is a link to a file that does not exist; nothing of the file is in force",
        "e.yaml: it is larger than 16 MiB; nothing of the file is in force",
    ];
    assert_eq!(place.state(), ("!".into(), messages.map(String::from).to_vec()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_bytes_in_a_file_have_an_answer(contents in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 1..4)) {
        let mut place = Place::new();
        place.write("good.yaml", node("a", 1));
        for bytes in contents {
            place.write("f.yaml", bytes);
            place.scan(Unannounced::Read);
            prop_assert!(place.files.snapshot().nodes.len() == 1);
        }
    }
}
