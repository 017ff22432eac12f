// SPDX-License-Identifier: Apache-2.0
//! Another `vips.interface`: what an earlier process has placed moves there, address by address on both before it is on one, and nothing else does.

use super::*;

fn on(namespace: &Namespace, device: &str) -> BTreeSet<IpAddr> {
    let shown = namespace.ip(&format!("-o addr show dev {device} scope global"));
    let words = shown.lines().map(|line| line.split_whitespace().nth(3).unwrap().split('/').next().unwrap());
    words.map(ip).collect()
}

fn recorded_interfaces(namespace: &Namespace) -> Vec<String> {
    let set = namespace.output(&["nft", "list", "set", "inet", "vipherald", "interface"]);
    ["lo", "br0", "br1"].into_iter().filter(|name| set.contains(&format!("\"{name}\""))).map(ToOwned::to_owned).collect()
}

async fn on_device(device: &str) -> Kernel {
    Kernel::new(device, "vipherald").await.unwrap()
}

#[test]
fn addresses_are_on_the_new_interface_before_they_leave_the_old_one() {
    let namespace = Namespace::new("moving");
    namespace.ip("link add br0 type bridge");
    namespace.enter(async || {
        let vips = set(&["10.0.0.7", "10.0.0.8", "2001:db8:7::7"]);
        place(&mut kernel().await, &vips).await;
        namespace.ip("addr add 10.0.0.9/32 dev lo");
        let mut moved = on_device("br0").await;
        let seen = on_interface(&moved.observe().await.unwrap());
        assert_eq!(seen, ["10.0.0.7", "10.0.0.8", "2001:db8:7::7"].map(ours), "they are served until they have moved");
        // Down it delivers nothing.
        let error = moved.move_addresses().await.unwrap_err().to_string();
        assert_eq!(error, "interface br0 is down");
        assert_eq!(moved.observe_fresh().await.unwrap().interface, InterfaceState::Up, "that on which they are");
        assert_eq!((on(&namespace, "lo").is_superset(&vips), on(&namespace, "br0")), (true, set(&[])));
        assert!(moved.has_to_move());
        namespace.ip("link set br0 up");
        moved.move_addresses().await.unwrap();
        assert!(!moved.has_to_move());
        assert_eq!((on(&namespace, "lo"), on(&namespace, "br0")), (set(&["10.0.0.9"]), vips.clone()), "that of somebody else stays");
        assert_eq!(recorded_interfaces(&namespace), ["br0"]);
        let state = moved.observe_fresh().await.unwrap();
        assert_eq!(on_interface(&state), ["10.0.0.7", "10.0.0.8", "2001:db8:7::7"].map(ours));
        assert_eq!((state.record.confirmed, state.elsewhere.contains(&ip("10.0.0.9"))), (vips.clone(), true));
        // And back, by the next process.
        let mut back = kernel().await;
        back.move_addresses().await.unwrap();
        assert_eq!((on(&namespace, "lo"), on(&namespace, "br0")), (&vips | &set(&["10.0.0.9"]), set(&[])));
    });
}

#[test]
fn a_move_that_broke_off_goes_on_also_to_a_third_interface() {
    let namespace = Namespace::new("moving-broken");
    for device in ["br0", "br1"] {
        namespace.ip(&format!("link add {device} type bridge"));
        namespace.ip(&format!("link set {device} up"));
    }
    namespace.enter(async || {
        let vips = set(&["10.0.0.7", "2001:db8:7::7"]);
        place(&mut kernel().await, &vips).await;
        // One has come, none has gone.
        namespace.nft("add element inet vipherald interface { \"br0\" }");
        add_on("br0", "10.0.0.7").await;
        let mut next = on_device("br1").await;
        next.move_addresses().await.unwrap();
        assert_eq!([on(&namespace, "lo"), on(&namespace, "br0"), on(&namespace, "br1")], [set(&[]), set(&[]), vips.clone()]);
        assert_eq!(recorded_interfaces(&namespace), ["br1"]);
        // An interface that is gone has taken them along; they are added by plan.
        namespace.ip("link del br1");
        let mut next = on_device("br0").await;
        next.move_addresses().await.unwrap();
        assert!(!next.has_to_move());
        assert_eq!((on_interface(&next.observe_fresh().await.unwrap()), recorded_interfaces(&namespace)), (vec![], vec!["br0".to_owned()]));
    });
}

#[test]
fn where_there_is_no_such_interface_all_stays_as_it_was() {
    let namespace = Namespace::new("moving-nowhere");
    namespace.enter(async || {
        let vips = set(&["10.0.0.7", "2001:db8:7::7"]);
        place(&mut kernel().await, &vips).await;
        let before = namespace.output(&["nft", "list", "ruleset"]);
        let mut nowhere = on_device("br7").await;
        let error = nowhere.move_addresses().await.unwrap_err().to_string();
        assert_eq!(error, "there is no interface br7");
        let state = nowhere.observe_fresh().await.unwrap();
        assert_eq!((state.interface, on_interface(&state)), (InterfaceState::Up, ["10.0.0.7", "2001:db8:7::7"].map(ours).to_vec()));
        assert_eq!((on(&namespace, "lo"), namespace.output(&["nft", "list", "ruleset"])), (vips, before));
    });
}

#[test]
fn what_cannot_move_stays_and_goes_when_it_is_not_wanted() {
    let namespace = Namespace::new("moving-stuck");
    namespace.ip("link add br0 type bridge");
    namespace.ip("link set br0 up");
    namespace.enter(async || {
        let vips = set(&["10.0.0.7", "2001:db8:7::7"]);
        place(&mut kernel().await, &vips).await;
        std::fs::write("/proc/sys/net/ipv6/conf/br0/disable_ipv6", "1").unwrap();
        let mut moved = on_device("br0").await;
        for _ in 0..2 {
            let error = moved.move_addresses().await.unwrap_err().to_string();
            assert!(error.contains("IPv6 is disabled on br0"), "{error}");
            assert_eq!((on(&namespace, "lo"), on(&namespace, "br0")), (set(&["2001:db8:7::7"]), set(&["10.0.0.7"])));
            assert_eq!(on_interface(&moved.observe_fresh().await.unwrap()), ["10.0.0.7", "2001:db8:7::7"].map(ours));
        }
        all_ok(&mut moved, &[Step::RemoveAddress(ip("2001:db8:7::7"))]).await;
        assert_eq!(on(&namespace, "lo"), set(&[]));
        moved.move_addresses().await.unwrap();
        assert_eq!(recorded_interfaces(&namespace), ["br0"]);
    });
}

#[test]
fn what_another_instance_has_there_stays() {
    let namespace = Namespace::new("moving-shared");
    namespace.ip("link add br0 type bridge");
    namespace.ip("link set br0 up");
    namespace.enter(async || {
        let vips = set(&["10.0.0.7", "10.0.0.8"]);
        place(&mut kernel().await, &vips).await;
        let mut other = Kernel::new("lo", "other").await.unwrap();
        all_ok(&mut other, &[Step::RecordPending(set(&["10.0.0.7"]).into()), Step::RecordConfirmed(set(&["10.0.0.7"]).into())]).await;
        on_device("br0").await.move_addresses().await.unwrap();
        assert_eq!((on(&namespace, "lo"), on(&namespace, "br0")), (set(&["10.0.0.7"]), vips));
        assert_eq!(on_interface(&other.observe_fresh().await.unwrap()), [ours("10.0.0.7")]);
    });
}

/// As a process does that dies after it.
async fn add_on(device: &str, address: &str) {
    let mut kernel = Kernel::new(device, "scratch").await.unwrap();
    all_ok(&mut kernel, &[Step::AddAddress(ip(address))]).await;
}
