// SPDX-License-Identifier: Apache-2.0
use super::*;

fn balancer(name: &str, second: u32, annotations: &str, port: u16, more: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}, creationTimestamp: '2026-01-01T00:00:{second:02}Z', annotations: {{{annotations}}}}}\n\
         spec:\n  type: LoadBalancer\n  loadBalancerClass: vipherald.io/vip\n  ipFamilies: [IPv4]\n  ports: [{{port: {port}}}]\n  {more}\n"
    )
}

const RECORDED: &str = "\nstatus: {loadBalancer: {ingress: [{ip: 10.0.0.7, ipMode: VIP}]}}";

#[test]
fn a_load_balancer_has_what_it_asks_for_or_else_what_is_recorded() {
    let ready = |name| slice(name, "IPv4", READY);
    let by_name = balancer("a", 1, "vipherald.io/ips: 10.0.0.8", 80, RECORDED);
    assert_compiles(&config(), &[by_name, ready("a")], &["10.0.0.8 Serve"], &[]);
    let by_field = balancer("a", 1, "", 80, "loadBalancerIP: 10.0.0.9");
    assert_compiles(&config(), &[by_field, ready("a")], &["10.0.0.9 Serve"], &[]);
    assert_compiles(&config(), &[balancer("a", 1, "", 80, RECORDED), ready("a")], &["10.0.0.7 Serve"], &[]);
    assert_compiles(&config(), &[balancer("a", 1, "", 80, ""), ready("a")], &[], &[]);
    let wrong = balancer("a", 1, "vipherald.io/ips: '10.0.0.8,x,2001:db8::1'", 80, "");
    assert_compiles(
        &config(),
        &[wrong, ready("a")],
        &["10.0.0.8 Serve"],
        &[
            "Service default/a Invalid metadata.annotations[vipherald.io/ips]: 2001:db8::1 is not of spec.ipFamilies, so that no endpoint could answer",
            "Service default/a Invalid metadata.annotations[vipherald.io/ips]: \"x\" is no IPv4 or IPv6 address",
        ],
    );
}

#[test]
fn other_classes_and_other_types_are_not_touched() {
    for (from, to) in
        [("vipherald.io/vip", "example.org/other"), ("loadBalancerClass: vipherald.io/vip", ""), ("type: LoadBalancer", "type: NodePort")]
    {
        let other = balancer("a", 1, "vipherald.io/ips: 10.0.0.8", 80, RECORDED).replacen(from, to, 1);
        assert_compiles(&config(), &[other, slice("a", "IPv4", READY)], &[], &[]);
    }
}

#[test]
fn load_balancers_share_a_vip_where_both_say_so() {
    let shared = "vipherald.io/ips: 10.0.0.8, vipherald.io/sharing-key: k";
    let services = [
        balancer("a", 1, shared, 80, ""),
        balancer("b", 2, shared, 81, ""),
        balancer("c", 3, "vipherald.io/ips: 10.0.0.8", 82, ""),
        balancer("d", 4, shared, 80, ""),
        balancer("e", 5, "vipherald.io/ips: 10.0.0.8, vipherald.io/sharing-key: k2", 83, ""),
        eric("f", "10.0.0.8", "a", 90),
    ];
    let belongs = "10.0.0.8 belongs to Service default/a, which is older; Services of one namespace share it where their ports differ and both have \
                   the same annotation vipherald.io/sharing-key";
    let compiled = compile(&snapshot_of(&services.concat()), &config());
    let field = "metadata.annotations[vipherald.io/ips]";
    assert_eq!(
        outcome(&compiled).1,
        [
            format!("Service default/c 10.0.0.8 Conflict {field}: {belongs}"),
            format!("Service default/d 10.0.0.8 Conflict {field}: 80/tcp of 10.0.0.8 belongs to Service default/a, which is older"),
            format!("Service default/e 10.0.0.8 Conflict {field}: {belongs}"),
        ]
    );
    let owners =
        |compiled: &Compiled| compiled.desired.vips.values().flat_map(|vip| &vip.owners).map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(owners(&compiled), ["Service default/a", "Service default/b", "EricIngress default/f"]);
}

#[test]
fn fields_that_nobody_honours_are_named() {
    let asks = "trafficDistribution: PreferClose\n  externalIPs: [10.0.0.9]\n  loadBalancerSourceRanges: [10.0.0.0/8]";
    let manifest = balancer("a", 1, "service.kubernetes.io/topology-mode: Auto", 80, asks);
    let with = |kind| Config { dataplane: Dataplane { kind, ..config().dataplane }, ..config() };
    let messages = |kind| outcome(&compile(&snapshot_of(&manifest), &with(kind))).1;
    assert_eq!(
        messages(DataplaneType::Ipvs),
        [
            "Service default/a NotHonoured metadata.annotations[service.kubernetes.io/topology-mode]: \"Auto\" is not honoured: all usable endpoints get traffic alike",
            "Service default/a NotHonoured spec.trafficDistribution: \"PreferClose\" is not honoured: all usable endpoints get traffic alike",
        ]
    );
    assert_eq!(
        messages(DataplaneType::KubeProxy),
        [
            "Service default/a NotHonoured spec.loadBalancerSourceRanges: \"10.0.0.0/8\" is not honoured: kube-proxy does not apply it to spec.externalIPs: everybody is let in there; \
             use type LoadBalancer, or dataplane ipvs or nftables"
        ]
    );
}
