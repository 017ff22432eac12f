// SPDX-License-Identifier: Apache-2.0
use proptest::prelude::*;

use super::*;

fn names(parsed: &Parsed) -> Vec<String> {
    parsed.objects.iter().map(|found| format!("{}@{}:{}", found.name, found.place.document, found.place.line)).collect()
}

fn faults(parsed: &Parsed) -> Vec<String> {
    let place = |fault: &Fault| fault.place.map_or_else(String::new, |place| format!("{}:{} ", place.document, place.line));
    parsed.faults.iter().map(|fault| format!("{}{:?} {}", place(fault), fault.reason, fault.message)).collect()
}

fn only_fault(text: &str) -> Fault {
    let mut parsed = parse(text);
    assert_eq!(names(&parsed), [""; 0], "{text}");
    assert_eq!(parsed.faults.len(), 1, "{:?}", parsed.faults);
    parsed.faults.remove(0)
}

#[test]
fn documents_are_divided_and_counted() {
    let node = "apiVersion: v1\nkind: Node\nmetadata:\n  name: ";
    let text = format!(
        "\u{feff}# a licence\n---\n---\n{node}a\n--- # the next\n{node}b\n  annotations:\n    text: |\n      x\n      ---\n...\n# only a comment\n---\n\n\
         --- {{apiVersion: v1, kind: Node, metadata: {{name: c}}}}\n---\nnull\n...\n%YAML 1.2\n---\n{node}d\r\n---\r\n{node}e\r\n"
    );
    let parsed = parse(&text);
    assert_eq!(faults(&parsed), [""; 0]);
    assert_eq!(names(&parsed), ["Node a@1:3", "Node b@2:8", "Node c@3:21", "Node d@5:25", "Node e@6:31"].map(String::from));
}

#[test]
fn comments_alone_are_an_empty_intent_and_nothing_at_all_is_not() {
    assert_eq!(faults(&parse("# switched off\n---\n# kind: Service\n")), [""; 0]);
    for text in ["", "\n \n"] {
        let fault = only_fault(text);
        assert_eq!((fault.scope, fault.message.as_str()), (Scope::File, "the file is empty; delete it to remove its objects"));
    }
}

#[test]
fn what_is_no_yaml_names_document_and_line_and_spares_the_other_documents() {
    let node = |name| format!("apiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\n");
    for (bad, line, message) in [
        ("kind: Node\nkind: Node\n", 6, "duplicate mapping key `kind` is not allowed here"),
        ("a:\n\tb: 1\n", 6, "tabs disallowed within this context (block indentation)"),
        ("a: {b: 1\n", 5, "unclosed bracket '{'"),
        ("a: *b\n", 5, "reference to unknown value"),
        ("a: .inf\n", 5, "value `.inf` is not a finite number"),
    ] {
        let parsed = parse(&format!("{}---\n{bad}---\n{}", node("a"), node("b")));
        assert_eq!(faults(&parsed), [format!("2:{line} Malformed {message}")]);
        assert!(matches!(parsed.faults[0].scope, Scope::File));
        assert_eq!(parsed.objects.iter().map(|found| found.name.to_string()).collect::<Vec<_>>(), ["Node a", "Node b"]);
    }
}

#[test]
fn aliases_cannot_grow_without_bound() {
    let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
    for depth in 1..12 {
        bomb += &format!("a{depth}: &a{depth} [{}]\n", vec![format!("*a{}", depth - 1); 10].join(","));
    }
    assert!(matches!(only_fault(&bomb).scope, Scope::File));
    assert!(matches!(only_fault(&"[".repeat(100_000)).scope, Scope::File));
}

#[test]
fn a_document_without_a_name_could_be_any_object() {
    for (text, message) in [
        ("just text\n", "expected an object with apiVersion, kind and metadata"),
        ("- a\n", "expected an object with apiVersion, kind and metadata"),
        ("metadata: {name: x}\n", "kind: is missing"),
        ("apiVersion: v1\nkind: Service\n", "metadata.name: is missing"),
        ("apiVersion: v1\nkind: Service\nmetadata: {name: ''}\n", "metadata.name: is missing"),
        ("apiVersion: v1\nkind: Service\nmetadata: {name: 5}\n", "metadata.name: invalid type: integer `5`, expected a string"),
        ("apiVersion: v1\nkind: Service\nmetadata: {name: y}\n", "metadata.name: invalid type: boolean `true`, expected a string"),
        (
            "apiVersion: v1\nkind: Service\nmetadata: {name: My_Service}\n",
            "metadata.name: \"My_Service\" is no name; expected lower case letters, digits, '-' and '.'",
        ),
        (
            "apiVersion: v1\nkind: Service\nmetadata: {name: a, namespace: a.b}\n",
            "metadata.namespace: \"a.b\" is no name; expected lower case letters, digits and '-'",
        ),
        ("kind: List\nitems: {}\n", "items: expected the objects of the List"),
        ("kind: List\nitems: [5]\n", "items[0]: expected an object with apiVersion, kind and metadata"),
    ] {
        let fault = only_fault(text);
        assert_eq!((fault.scope, fault.reason, fault.message.as_str()), (Scope::File, RejectionReason::Malformed, message));
    }
}

#[test]
fn a_kind_that_was_probably_meant_is_a_fault_of_that_object() {
    for (text, name, message) in [
        ("apiVersion: v1\nkind: service", "Service default/a", "kind: \"service\" is unknown; did you mean Service?"),
        ("apiVersion: v1\nkind: Sevrice", "Service default/a", "kind: \"Sevrice\" is unknown; did you mean Service?"),
        ("kind: Service", "Service default/a", "apiVersion: is missing; expected v1"),
        (
            "apiVersion: discovery.k8s.io/v1beta1\nkind: EndpointSlice",
            "EndpointSlice default/a",
            "apiVersion: \"discovery.k8s.io/v1beta1\" is not read; expected discovery.k8s.io/v1",
        ),
    ] {
        let fault = only_fault(&format!("{text}\nmetadata: {{name: a}}\n"));
        let Scope::Object(found) = fault.scope else { panic!("{fault:?}") };
        assert_eq!((found.to_string().as_str(), fault.reason, fault.message.as_str()), (name, RejectionReason::Invalid, message));
    }
}

#[test]
fn other_kinds_are_told_and_left_aside() {
    for (text, message) in [
        (
            "apiVersion: apps/v1\nkind: Deployment",
            "kind: \"Deployment\" is not read; expected Service, EndpointSlice, Node, Namespace, DaemonSet, StatefulSet, EricIngress, LvsIngress",
        ),
        ("apiVersion: v1\nkind: Endpoints", "kind: \"Endpoints\" is not read; write an EndpointSlice (discovery.k8s.io/v1) instead"),
        (
            "apiVersion: serving.knative.dev/v1\nkind: Service",
            "apiVersion: a Service of \"serving.knative.dev/v1\" is not read; expected v1",
        ),
        (
            "apiVersion: x.io/v1\nkind: Nodes",
            "kind: \"Nodes\" is not read; expected Service, EndpointSlice, Node, Namespace, DaemonSet, StatefulSet, EricIngress, LvsIngress",
        ),
    ] {
        let fault = only_fault(&format!("{text}\nmetadata: {{name: a}}\n"));
        assert!(matches!(&fault.scope, Scope::Aside(stub) if !stub.may_be_ours()), "{fault:?}");
        assert_eq!(fault.message, message);
    }
}

#[test]
fn a_wrong_value_names_its_field_and_line() {
    let text = "kind: Service\napiVersion: v1\nmetadata:\n  name: nginx\nspec:\n  externalIPs: [10.0.0.7]\n  ports:\n  - name: web\n    port: '80'\n";
    let parsed = parse(&format!("# one\n---\n{text}---\n{}", text.replace("'80'", "0800")));
    assert_eq!(
        faults(&parsed),
        [
            "1:11 Malformed spec.ports[0].port: invalid type: string \"80\", expected i32; a port is 1 to 65535",
            "2:21 Malformed spec.ports[0].port: invalid type: string \"0800\", expected i32; a port is 1 to 65535"
        ]
    );
}

#[test]
fn unknown_fields_of_our_kinds_name_the_nearest_one() {
    let text = "\
apiVersion: routing.ericingress.ericsson.com/v1alpha1
kind: EricIngress
metadata: {name: mscm, namespace: enm}
specs: {}
spec:
  virtualServiceIp: 10.232.35.199
  backends:
    name: mscm
    config:
      - portRange:
          vipPortRange: {start: 1, end: 2}
          svcPortRange: {start: 1, stop: 2}
        algorithm: sh
";
    assert_eq!(
        faults(&parse(text)),
        [
            "1:4 Invalid specs: unknown field; did you mean spec?",
            "1:13 Invalid spec.backends.config[0].algorithm: unknown field",
            "1:12 Invalid spec.backends.config[0].portRange.svcPortRange.stop: unknown field",
            "1:6 Invalid spec.virtualServiceIp: unknown field; did you mean virtualServiceIP?",
            "1:5 Invalid spec.virtualServiceIP: is missing",
            "1:12 Invalid spec.backends.config[0].portRange.svcPortRange: start or end is missing",
        ]
    );
}

#[test]
fn a_number_that_is_no_port_hides_nothing_else() {
    let text = "\
apiVersion: routing.ericingress.ericsson.com/v1alpha1
kind: EricIngress
metadata: {name: mscm}
spec:
  virtualServiceIP: 10.232.35.199
  backends:
    name: mscm
    config:
      - portRange:
          vipPortRange:
            start: 1
            end: 99999999999999999999
          svcPortRange: {start: 80.5, end: http}
        algo: shh
---
apiVersion: routing.lvsingress.ericsson.com/v1alpha1
kind: LvsIngress
metadata: {name: mscm}
spec:
  virtualServiceIP: 10.232.35.199
  backendService: {serviceName: mscm, portMappings: [{lbPort: -99999999999999999999, svcPort: 18446744073709551615}]}
---
apiVersion: v1
kind: Service
metadata: {name: mscm}
spec:
  ports:
    - port: 99999999999
";
    assert_eq!(
        faults(&parse(text)),
        [
            "1:12 Invalid spec.backends.config[0].portRange.vipPortRange.end: about 1.00e20 is no port, which is 1 to 65535",
            "1:13 Invalid spec.backends.config[0].portRange.svcPortRange.start: 80.5 is no port, which is 1 to 65535",
            "1:13 Invalid spec.backends.config[0].portRange.svcPortRange.end: \"http\" is no port, which is 1 to 65535",
            "1:14 Invalid spec.backends.config[0].algo: \"shh\" is unknown; expected one of rr, wrr, lc, wlc, lblc, lblcr, dh, sh, sed, nq, fo, ovf, mh, \
             twos; did you mean sh?",
            "2:21 Invalid spec.backendService.portMappings[0].lbPort: about -1.00e20 is no port, which is 1 to 65535",
            "2:21 Invalid spec.backendService.portMappings[0].svcPort: 18446744073709551615 is no port, which is 1 to 65535",
            "3:28 Malformed spec.ports[0].port: invalid value: integer `99999999999`, expected i32; a port is 1 to 65535",
        ]
    );
}

#[test]
fn a_list_is_read_as_its_items() {
    let text = r#"{"apiVersion": "v1", "kind": "List", "items": [
	{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "namespace": "ignored"}},
	{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "b"},
	 "spec": {"podCIDR": 5}},
	{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "c"}}]}"#;
    let parsed = parse(text);
    assert_eq!(names(&parsed), ["Node a@1:2", "Service default/c@1:5"]);
    assert_eq!(faults(&parsed), ["1:4 Malformed items[1].spec.podCIDR: invalid type: integer `5`, expected a string"]);
    let Object::Node(node) = &parsed.objects[0].object else { panic!() };
    assert_eq!(node.metadata.namespace, None);
    let Object::Service(service) = &parsed.objects[1].object else { panic!() };
    assert_eq!(service.metadata.namespace.as_deref(), Some("default"));
}

#[test]
fn objects_are_written_in_a_form_that_is_read_alike() {
    let manifests = ["eric-ingress", "lvs-ingress", "nginx", "node"]
        .map(|name| std::fs::read_to_string(format!("{}/examples/manifests/{name}.yaml", env!("CARGO_MANIFEST_DIR"))).unwrap());
    let parsed = parse(&manifests.join("---\n"));
    assert_eq!(faults(&parsed), [""; 0]);
    let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": parsed.objects.iter().map(|found| &found.object).collect::<Vec<_>>()});
    let again = parse(&list.to_string());
    assert_eq!(faults(&again), [""; 0]);
    let objects = |parsed: &Parsed| parsed.objects.iter().map(|found| found.object.clone()).collect::<Vec<_>>();
    assert_eq!(objects(&again), objects(&parsed));
}

/// Pieces of which a file can be made that is nearly a manifest.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("---\n".to_owned()),
        Just("...\n".to_owned()),
        Just("apiVersion: v1\n".to_owned()),
        Just("kind: Service\n".to_owned()),
        Just("kind: List\nitems:\n- ".to_owned()),
        Just("kind: EricIngress\napiVersion: routing.ericingress.ericsson.com/v1alpha1\n".to_owned()),
        Just("metadata:\n  name: a\n".to_owned()),
        Just("spec:\n  externalIPs: [10.0.0.7, ::1]\n".to_owned()),
        Just("  ports: [{port: 80}]\n".to_owned()),
        Just("%YAML 1.2\n".to_owned()),
        Just("&a *a <<: !!str | > '".to_owned()),
        "\\PC{0,20}",
        any::<char>().prop_map(String::from),
    ];
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_text_has_an_answer(text in prop_oneof![pieces(), ".{0,200}"]) {
        let parsed = parse(&text);
        for fault in parsed.faults {
            prop_assert!(!fault.message.contains('\n'), "{:?}", fault.message);
        }
    }

    #[test]
    fn the_order_of_documents_does_not_matter(order in Just((0..6).collect::<Vec<usize>>()).prop_shuffle()) {
        let document = |number: &usize| match number {
            5 => "apiVersion: v1\nkind: Service\nmetadata: {name: bad}\nspec: {ports: 5}\n".to_owned(),
            number => format!("apiVersion: v1\nkind: Node\nmetadata: {{name: n{number}}}\n"),
        };
        let mut parsed = parse(&order.iter().map(document).collect::<Vec<_>>().join("---\n"));
        parsed.objects.sort_by(|a, b| a.name.cmp(&b.name));
        let names: Vec<_> = parsed.objects.iter().map(|found| found.name.name.clone()).collect();
        prop_assert_eq!(names, ["n0", "n1", "n2", "n3", "n4"].map(String::from));
        prop_assert_eq!(parsed.faults.len(), 1);
    }
}
