// SPDX-License-Identifier: Apache-2.0
//! The CustomResourceDefinitions of the kinds that the product offers.
//!
//! Input: the types and words of this module. Output: `apiextensions.k8s.io/v1` objects with structural schemas, and rules in CEL that refuse what
//! `ingress.rs` refuses (`tests/objects/ingress.yaml` is the table that both are held against). Invariants: the fields are those of
//! `raw.rs`, which a test compares; nothing is pruned that older versions could hold; a later revision accepts what an earlier one did.

use serde_json::{Value, json};

use super::ingress::MOST_MAPPINGS;
use super::{ForwardingMethod, Kind, Scheduler};

/// The annotation with the [`REVISION`] of a definition in the cluster.
pub const REVISION_ANNOTATION: &str = "vipherald.io/crd-revision";

/// Counts the changes of the definitions, so that an older program leaves a newer definition alone.
pub const REVISION: u64 = 2;

/// The definitions, in the order in which they are installed.
#[must_use]
pub fn definitions() -> [Value; 3] {
    [eric_ingress(), lvs_ingress(), router_node()]
}

struct Names {
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    singular: &'static str,
    short: &'static str,
    scope: &'static str,
}

/// A definition with one version, `v1alpha1`.
fn definition(names: &Names, schema: &Value, columns: &Value) -> Value {
    let Names { group, kind, plural, singular, short, scope } = names;
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.{group}"),
            "annotations": {REVISION_ANNOTATION: REVISION.to_string()},
        },
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": singular, "shortNames": [short], "categories": ["vipherald"]},
            "preserveUnknownFields": false,
            "conversion": {"strategy": "None"},
            "versions": [{
                "name": "v1alpha1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}},
                "additionalPrinterColumns": columns,
            }],
        },
    })
}

fn eric_ingress() -> Value {
    let names = Names {
        group: group(Kind::EricIngress),
        kind: "EricIngress",
        plural: "ericingresses",
        singular: "ericingress",
        short: "eri",
        scope: "Namespaced",
    };
    let port_range = object(
        "Ports of the VIP, and the ports of the Service that they go to, one by one.",
        &["vipPortRange", "svcPortRange"],
        json!({"vipPortRange": range("Ports of the VIP."), "svcPortRange": range("Ports of the Service.")}),
    );
    let equally_long = rule(
        "self.vipPortRange.end - self.vipPortRange.start == self.svcPortRange.end - self.svcPortRange.start",
        "vipPortRange and svcPortRange must be equally long",
    );
    let config = object(
        "Ports of one protocol that are balanced alike.",
        &["portRange"],
        json!({
            "portRange": with(port_range, "x-kubernetes-validations", json!([equally_long])),
            "protocol": protocol(),
            "algo": word("The IPVS scheduler.", Scheduler::ALL.iter().map(|word| word.word()), Scheduler::default().word()),
            "mode": word("How packets get to the pods.", ForwardingMethod::ALL.iter().map(|word| word.word()), ForwardingMethod::default().word()),
        }),
    );
    let overlaps = rule(
        "self.all(a, self.exists_one(b, a.protocol.lowerAscii() == b.protocol.lowerAscii() && a.portRange.vipPortRange.start <= b.portRange.vipPortRange.end && b.portRange.vipPortRange.start <= a.portRange.vipPortRange.end))",
        "no two entries may take the same port of the VIP",
    );
    let backends = object(
        "What stands behind the VIP.",
        &["name", "config"],
        json!({
            "name": {"type": "string", "minLength": 1, "description": "A Service of the same namespace."},
            "config": list("The ports.", config, overlaps),
        }),
    );
    let spec = object("What is wanted.", &["virtualServiceIP", "backends"], json!({"virtualServiceIP": vip(), "backends": backends}));
    definition(&names, &schema("A VIP whose ports go to a Service.", spec), &ingress_columns(".spec.backends.name"))
}

fn lvs_ingress() -> Value {
    let names = Names {
        group: group(Kind::LvsIngress),
        kind: "LvsIngress",
        plural: "lvsingresses",
        singular: "lvsingress",
        short: "lvsi",
        scope: "Namespaced",
    };
    let mapping = object(
        "One port.",
        &["lbPort", "svcPort"],
        json!({
            "lbPort": port("The port of the VIP."),
            "svcPort": port("The port of the Service that it goes to."),
            "protocol": protocol(),
            "sch": word("The IPVS scheduler.", Scheduler::ALL.iter().map(|word| word.word()), Scheduler::default().word()),
        }),
    );
    let overlaps = rule(
        "self.all(a, self.exists_one(b, a.protocol.lowerAscii() == b.protocol.lowerAscii() && a.lbPort == b.lbPort))",
        "no two entries may take the same port of the VIP",
    );
    let service = object(
        "What stands behind the VIP.",
        &["serviceName", "portMappings"],
        json!({
            "serviceName": {"type": "string", "minLength": 1, "description": "A Service of the same namespace."},
            "portMappings": list("The ports.", mapping, overlaps),
        }),
    );
    let spec =
        object("What is wanted.", &["virtualServiceIP", "backendService"], json!({"virtualServiceIP": vip(), "backendService": service}));
    definition(&names, &schema("The older form of EricIngress.", spec), &ingress_columns(".spec.backendService.serviceName"))
}

fn router_node() -> Value {
    let names =
        Names { group: "vipherald.io", kind: "RouterNode", plural: "routernodes", singular: "routernode", short: "rn", scope: "Cluster" };
    let text = |description: &str| json!({"type": "string", "description": description});
    let number = |description: &str| json!({"type": "integer", "format": "int64", "description": description});
    let texts = |description: &str| json!({"type": "array", "description": description, "items": {"type": "string"}});
    let peer = object(
        "A BGP peer.",
        &["name"],
        json!({
            "name": text("Its name in the configuration."),
            "address": text("Its address; absent while it is not known."),
            "asn": number("Its AS."),
            "established": {"type": "boolean", "description": "Whether its session is Established."},
            "since": text("Since when it is, or is not."),
            "lastError": text("Why there is no session."),
        }),
    );
    let router = object(
        "The virtual routers with one VRID.",
        &["virtualRouterId"],
        json!({
            "virtualRouterId": number("Their VRID."),
            "addresses": texts("From where they advertise, one address of each family that the interface has."),
        }),
    );
    let group = object(
        "VIPs of which the same is to be said.",
        &[],
        json!({
            "state": text("Withheld, Pending, Announced, Withdrawing or Draining."),
            "programmed": text("Whether the node takes their packets: True, False or Unknown."),
            "reason": text("Why, for machines."),
            "message": text("Why, for persons."),
            "peers": texts("The peers that were told."),
            "addresses": texts("Which ones."),
        }),
    );
    let status = object(
        "What the node says of itself.",
        &[],
        json!({
            "instance": text("The instance."),
            "node": text("The Node."),
            "version": text("The version of the program."),
            "mode": text("How VIPs get into the fabric."),
            "vipCount": number("How many VIPs are wanted here."),
            "announcedCount": number("How many of them are announced."),
            "peers": {"type": "array", "description": "The BGP peers.", "items": peer},
            "virtualRouters": {
                "type": "array",
                "description": "From where it advertises as a virtual router, for the other nodes.",
                "items": router,
            },
            "vips": {"type": "array", "description": "The VIPs.", "items": group},
            "conditions": conditions(),
        }),
    );
    let schema = with(object("What one node of one instance says of itself.", &[], json!({"status": status})), "type", json!("object"));
    let columns = json!([
        column("Node", "string", ".status.node"),
        column("Mode", "string", ".status.mode"),
        column("VIPs", "integer", ".status.vipCount"),
        column("Announced", "integer", ".status.announcedCount"),
        column("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status"),
        column("Age", "date", ".metadata.creationTimestamp"),
    ]);
    definition(&names, &schema, &columns)
}

fn group(kind: Kind) -> &'static str {
    kind.api_version().split_once('/').map_or("", |(group, _)| group)
}

/// The whole object of an ingress.
fn schema(description: &str, spec: Value) -> Value {
    let status = object(
        "What the controller says of it.",
        &[],
        json!({
            "observedGeneration": {"type": "integer", "format": "int64", "description": "The generation that the rest is about."},
            "changeId": {"type": "integer", "format": "int64", "description": "The same, under its older name."},
            "announcing": {"type": "array", "items": {"type": "string"}, "description": "The nodes that announce the VIP."},
            "conditions": conditions(),
        }),
    );
    object(description, &["spec"], json!({"spec": spec, "status": status}))
}

fn ingress_columns(service: &str) -> Value {
    json!([
        column("VIP", "string", ".spec.virtualServiceIP"),
        column("Service", "string", service),
        column("Accepted", "string", ".status.conditions[?(@.type==\"Accepted\")].status"),
        column("Announcing nodes", "string", ".status.announcing"),
        column("Age", "date", ".metadata.creationTimestamp"),
    ])
}

fn column(name: &str, kind: &str, path: &str) -> Value {
    json!({"name": name, "type": kind, "jsonPath": path})
}

/// As `metav1.Condition` has it.
fn conditions() -> Value {
    let condition = object(
        "One aspect of its state.",
        &["type", "status"],
        json!({
            "type": {"type": "string", "description": "Which aspect."},
            "status": {"type": "string", "enum": ["True", "False", "Unknown"], "description": "Whether it holds."},
            "observedGeneration": {"type": "integer", "format": "int64", "description": "The generation that it is about."},
            "lastTransitionTime": {"type": "string", "format": "date-time", "description": "When status changed last."},
            "reason": {"type": "string", "description": "Why, for machines."},
            "message": {"type": "string", "description": "Why, and what helps, for persons."},
        }),
    );
    json!({
        "type": "array",
        "description": "Accepted, Programmed and the like.",
        "items": condition,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    })
}

fn object(description: &str, required: &[&str], properties: Value) -> Value {
    let object = json!({"type": "object", "description": description, "properties": properties});
    if required.is_empty() { object } else { with(object, "required", json!(required)) }
}

fn list(description: &str, items: Value, validation: Value) -> Value {
    json!({
        "type": "array",
        "description": description,
        "minItems": 1,
        "maxItems": MOST_MAPPINGS,
        "x-kubernetes-list-type": "atomic",
        "items": items,
        "x-kubernetes-validations": [validation],
    })
}

fn vip() -> Value {
    let is_address = rule("isIP(self)", "must be an IPv4 or IPv6 address, without prefix length, zone and leading zeros");
    // As long as the longest form of an address.
    json!({"type": "string", "description": "The VIP.", "maxLength": 45, "x-kubernetes-validations": [is_address]})
}

fn range(description: &str) -> Value {
    let range = object(description, &["start", "end"], json!({"start": port("The first port."), "end": port("The last port.")}));
    with(range, "x-kubernetes-validations", json!([rule("self.start <= self.end", "start must not be above end")]))
}

fn port(description: &str) -> Value {
    json!({"type": "integer", "minimum": 1, "maximum": 65535, "description": description})
}

/// In either case, as older objects have it.
fn protocol() -> Value {
    json!({
        "type": "string",
        "description": "tcp or udp, in either case.",
        "maxLength": 3,
        "pattern": "^([tT][cC][pP]|[uU][dD][pP])$",
        "default": "tcp",
    })
}

fn word<'a>(description: &str, words: impl Iterator<Item = &'a str>, default: &str) -> Value {
    json!({"type": "string", "description": description, "enum": words.collect::<Vec<_>>(), "default": default})
}

fn rule(rule: &str, message: &str) -> Value {
    json!({"rule": rule, "message": message})
}

fn with(mut object: Value, key: &str, value: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.insert(key.to_owned(), value);
    }
    object
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::api::raw;

    /// The fields of a schema and of a value that shows all of them have to be the same.
    fn compare(path: &str, schema: &Value, value: &Value) {
        match value {
            Value::Object(fields) => {
                let known: BTreeSet<&String> = schema["properties"].as_object().unwrap_or_else(|| panic!("{path}")).keys().collect();
                assert_eq!(known, fields.keys().collect(), "{path}");
                fields.iter().for_each(|(name, value)| compare(&format!("{path}.{name}"), &schema["properties"][name], value));
            }
            Value::Array(elements) => elements.iter().for_each(|element| compare(&format!("{path}[]"), &schema["items"], element)),
            _ => {}
        }
    }

    fn spec_of(definition: &Value) -> &Value {
        &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    }

    #[test]
    fn the_schemas_have_the_fields_of_the_types() {
        let mut eric = raw::EricIngress::default();
        eric.spec.backends.config.push(raw::BackendConfig::default());
        compare("spec", spec_of(&eric_ingress()), &serde_json::to_value(&eric.spec).unwrap());
        let mut lvs = raw::LvsIngress::default();
        lvs.spec.backend_service.port_mappings.push(raw::LvsPortMapping::default());
        compare("spec", spec_of(&lvs_ingress()), &serde_json::to_value(&lvs.spec).unwrap());
    }

    #[test]
    fn names_are_those_under_which_the_kinds_are_read() {
        for (definition, kind) in definitions().iter().zip([Kind::EricIngress, Kind::LvsIngress]) {
            assert_eq!(definition["spec"]["names"]["kind"], kind.name());
            let group = definition["spec"]["group"].as_str().unwrap();
            assert_eq!(format!("{group}/v1alpha1"), kind.api_version());
        }
    }

    #[test]
    fn unknown_fields_are_pruned_everywhere() {
        for definition in definitions() {
            assert!(!definition.to_string().contains("x-kubernetes-preserve-unknown-fields"));
        }
    }
}
