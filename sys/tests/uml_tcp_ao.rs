// SPDX-License-Identifier: Apache-2.0
//! TCP-AO of the kernel (RFC 5925): who connects with which key, and how a connection changes its key. Needs a kernel with `CONFIG_TCP_AO`.
#![allow(clippy::unwrap_used, reason = "a failed test says where")]

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use sys::{TcpAoAlgorithm, TcpAoKey, TcpAoKeyIds, add_tcp_ao_key, remove_tcp_ao_key, request_tcp_ao_key, tcp_ao_in_use, tcp_ao_keys};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn key(id: u8, key: &[u8]) -> TcpAoKey<'_> {
    TcpAoKey { ids: TcpAoKeyIds { send: id, recv: id }, algorithm: TcpAoAlgorithm::HmacSha1, key }
}

fn listener(keys: &[TcpAoKey<'_>]) -> TcpListener {
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    keys.iter().for_each(|key| add_tcp_ao_key(listener.as_fd(), HERE, 32, key, false).unwrap());
    listener
}

fn connect(listener: &TcpListener, keys: &[TcpAoKey<'_>]) -> io::Result<(TcpStream, TcpStream)> {
    let client = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    for (number, key) in keys.iter().enumerate() {
        add_tcp_ao_key(client.as_fd(), HERE, 32, key, number == 0).unwrap();
    }
    client.connect_timeout(&listener.local_addr().unwrap().into(), Duration::from_millis(300))?;
    Ok((client.into(), listener.accept().unwrap().0))
}

fn say(from: &mut TcpStream, to: &mut TcpStream) {
    from.write_all(b"x").unwrap();
    to.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    to.read_exact(&mut [0]).unwrap();
}

#[test]
fn rfc5925_only_the_same_key_connects() {
    let other = TcpAoKey { algorithm: TcpAoAlgorithm::Aes128Cmac, ..key(1, b"secret") };
    for (demanded, given, expected) in [
        (key(1, b"secret"), Some(key(1, b"secret")), true),
        (other, Some(other), true),
        (key(1, b"secret"), Some(key(1, b"Secret")), false),
        (key(1, b"secret"), Some(key(2, b"secret")), false),
        (key(1, b"secret"), Some(other), false),
        (key(1, b"secret"), None, false),
    ] {
        let listener = listener(&[demanded]);
        let given: Vec<_> = given.into_iter().collect();
        let connected = connect(&listener, &given);
        assert_eq!(connected.is_ok(), expected);
        if let Ok((mut near, mut far)) = connected {
            say(&mut near, &mut far);
            assert_eq!(tcp_ao_in_use(far.as_fd()), Some(TcpAoKeyIds { send: 1, recv: 1 }));
            assert_eq!(tcp_ao_keys(far.as_fd()).unwrap(), [TcpAoKeyIds { send: 1, recv: 1 }]);
        }
    }
}

/// Both ends learn the new key, ask for it, and the old one goes.
#[test]
fn rfc5925_7_5_a_connection_changes_its_key_without_an_end() {
    let listener = listener(&[key(1, b"old")]);
    let (mut near, mut far) = connect(&listener, &[key(1, b"old")]).unwrap();
    let (old, new) = (TcpAoKeyIds { send: 1, recv: 1 }, TcpAoKeyIds { send: 2, recv: 2 });
    for end in [&near, &far] {
        add_tcp_ao_key(end.as_fd(), HERE, 32, &key(2, b"new"), false).unwrap();
        assert_eq!(tcp_ao_in_use(end.as_fd()), Some(old));
        assert_eq!(add_tcp_ao_key(end.as_fd(), HERE, 32, &key(2, b"other"), false).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }
    for end in [&near, &far] {
        request_tcp_ao_key(end.as_fd(), 2).unwrap();
    }
    say(&mut near, &mut far);
    say(&mut far, &mut near);
    say(&mut near, &mut far);
    for end in [&near, &far] {
        assert_eq!(tcp_ao_in_use(end.as_fd()), Some(new));
        remove_tcp_ao_key(end.as_fd(), HERE, 32, old, None).unwrap();
        assert_eq!(remove_tcp_ao_key(end.as_fd(), HERE, 32, new, None).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        assert_eq!(tcp_ao_keys(end.as_fd()).unwrap(), [new]);
    }
    say(&mut far, &mut near);
}
