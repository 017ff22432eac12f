// SPDX-License-Identifier: Apache-2.0
//! Timeouts, version, and the daemons of connection synchronisation.

use ipvs::{Command, SyncDaemon, SyncRole, Timeouts};

use crate::execute;
use crate::namespace::{run, with_client};

#[test]
fn timeouts_are_set_and_zero_leaves_them() {
    with_client(async |mut client| {
        assert_eq!(client.timeouts().await.unwrap(), Timeouts { tcp: 900, tcp_fin: 120, udp: 300 });
        execute(&mut client, &[Command::SetTimeouts(Timeouts { tcp: 1800, tcp_fin: 0, udp: 60 })]).await;
        assert_eq!(client.timeouts().await.unwrap(), Timeouts { tcp: 1800, tcp_fin: 120, udp: 60 });
        assert_eq!(run("ipvsadm", &["-L", "--timeout"]).trim(), "Timeout (tcp tcpfin udp): 1800 120 60");
        run("ipvsadm", &["--set", "1200", "30", "90"]);
        assert_eq!(client.timeouts().await.unwrap(), Timeouts { tcp: 1200, tcp_fin: 30, udp: 90 });
    });
}

#[test]
fn version_and_size_are_those_of_ipvsadm() {
    with_client(async |mut client| {
        let info = client.info().await.unwrap();
        let (major, minor, patch) = info.version;
        let heading = format!("IP Virtual Server version {major}.{minor}.{patch} (size={})", info.connection_table_size);
        assert_eq!(run("ipvsadm", &["-Ln"]).lines().next(), Some(heading.as_str()));
    });
}

#[test]
fn daemons_start_show_themselves_and_stop() {
    with_client(async |mut client| {
        assert_eq!(client.daemons().await.unwrap(), []);
        let plain = SyncDaemon {
            role: SyncRole::Backup,
            interface: "lo".to_owned(),
            sync_id: 7,
            max_length: None,
            group: None,
            port: None,
            ttl: None,
        };
        let group = Some([239, 0, 0, 1].into());
        let exact = SyncDaemon { role: SyncRole::Master, max_length: Some(1400), group, port: Some(8849), ttl: Some(2), ..plain.clone() };
        execute(&mut client, &[Command::StartDaemon(exact.clone()), Command::StartDaemon(plain.clone())]).await;
        let daemons = client.daemons().await.unwrap();
        assert_eq!(daemons[0], exact);
        let SyncDaemon { max_length: Some(_), group: Some(group), port: Some(8848), .. } = &daemons[1] else { panic!("{daemons:?}") };
        assert_eq!((group.to_string().as_str(), daemons[1].sync_id), ("224.0.0.81", 7));
        let shown = run("ipvsadm", &["-L", "--daemon"]);
        assert!(shown.contains("master sync daemon (mcast=lo, syncid=7, maxlen=1400, group=239.0.0.1, port=8849, ttl=2)"), "{shown}");
        execute(&mut client, &[Command::StopDaemon(SyncRole::Master)]).await;
        assert_eq!(client.daemons().await.unwrap().len(), 1);
        execute(&mut client, &[Command::StopDaemon(SyncRole::Backup)]).await;
        // On lo the kernel has no route for it.
        run("ip", &["link", "add", "eth9", "type", "dummy"]);
        run("ip", &["link", "set", "eth9", "up"]);
        let v6 = SyncDaemon { interface: "eth9".to_owned(), group: Some("ff05::100".parse().unwrap()), ..exact };
        execute(&mut client, &[Command::StartDaemon(v6.clone())]).await;
        assert_eq!(client.daemons().await.unwrap(), [v6]);
        execute(&mut client, &[Command::StopDaemon(SyncRole::Master)]).await;
    });
}

#[test]
fn a_daemon_that_is_stopped_at_once_holds_nothing_up() {
    with_client(async |mut client| {
        let interface = "lo".to_owned();
        let daemon = SyncDaemon { role: SyncRole::Master, interface, sync_id: 0, max_length: None, group: None, port: None, ttl: None };
        for _ in 0..10 {
            execute(&mut client, &[Command::StartDaemon(daemon.clone()), Command::StopDaemon(SyncRole::Master)]).await;
            assert_eq!(client.daemons().await.unwrap(), []);
        }
    });
}
