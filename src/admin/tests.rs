// SPDX-License-Identifier: Apache-2.0
//! Server and client in one process.

use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http_body_util::{BodyExt as _, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, UnixStream};

use super::*;
use crate::desired::Lifecycle;
use crate::driver::bgp::Speaker;
use crate::status::tests::Node;

const PATIENCE: Duration = Duration::from_secs(20);

fn reader(node: &Node) -> StatusReader {
    let status = Arc::new(node.status(None));
    StatusReader::new(move || Arc::clone(&status))
}

fn desk(node: &Node, speaker: &Speaker) -> Desk {
    let table = || -> BoxFuture<'static, _> { Box::pin(async { Err("there is no table".to_owned()) }) };
    Desk { status: reader(node), ipvs: IpvsReader::new(table), operator: speaker.operator() }
}

#[tokio::test]
async fn the_client_gets_what_the_server_has() {
    let directory = tempfile::tempdir().unwrap();
    let state_dir = directory.path().join("a/b");
    let socket = AdminSocket::bind(&state_dir, "one").unwrap();
    let path = socket.path().to_owned();
    assert_eq!(path, state_dir.join(SOCKET));
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(&state_dir).unwrap().mode() & 0o777, 0o700);

    let node = Node::eventful();
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    let server = tokio::spawn(socket.serve(desk(&node, &speaker)));
    assert_eq!(fetch(&path, PATIENCE).await.unwrap(), node.status(None));
    assert_eq!(fetch(&path, PATIENCE).await.unwrap(), node.status(None), "and again");
    let nobody = PeerOrder { peer: "nobody".to_owned(), operation: Operation::Reset };
    assert_eq!(order(&path, PATIENCE, &nobody).await.unwrap_err().to_string(), "there is no peer 'nobody'; there is none");
    assert_eq!(fetch_ipvs(&path, PATIENCE).await.unwrap_err().to_string(), "there is no table");
    server.abort();
    assert!(server.await.unwrap_err().is_cancelled());
    assert!(!path.exists(), "the socket goes with the server");
}

#[tokio::test]
async fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(SOCKET);
    drop(UnixListener::bind(&path).unwrap());
    fs::write(path.with_extension("new"), "left by a crash").unwrap();
    let first = AdminSocket::bind(directory.path(), "one").unwrap();
    UnixStream::connect(&path).await.unwrap();

    let error = AdminSocket::bind(directory.path(), "one").unwrap_err();
    assert_eq!(error.to_string(), format!("another vipherald of instance one runs on this node: it holds {}", directory.path().display()));
    UnixStream::connect(&path).await.expect("the first one still listens");

    drop(first);
    AdminSocket::bind(directory.path(), "one").unwrap();
}

#[tokio::test]
async fn a_state_directory_that_is_none_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let error = AdminSocket::bind(&file, "one").unwrap_err();
    assert_eq!(chain(&error), format!("cannot use the state directory {}: File exists (os error 17)", file.display()));
}

#[tokio::test]
async fn the_client_says_what_is_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(SOCKET);
    let words = async |patience| {
        let error = fetch(&path, patience).await.unwrap_err();
        chain(&error).replace(&path.display().to_string(), "PATH")
    };
    assert_eq!(words(PATIENCE).await, "no vipherald answers at PATH: No such file or directory (os error 2)");

    let listener = UnixListener::bind(&path).unwrap();
    assert_eq!(words(Duration::from_millis(50)).await, "vipherald at PATH has not answered within 50ms");

    let server = tokio::spawn(async move { axum::serve(listener, Router::new()).await });
    assert_eq!(words(PATIENCE).await, "what listens at PATH is no vipherald: it answers 404 Not Found");
    server.abort();
    assert!(server.await.unwrap_err().is_cancelled());
    // Whoever reads /proc/self/fd meanwhile, as a test of metrics does, can hold the closed listener for an instant.
    let refused = async {
        while words(PATIENCE).await != "no vipherald answers at PATH: Connection refused (os error 111)" {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, refused).await.expect("refused in time");

    fs::remove_file(&path).unwrap();
    let listener = UnixListener::bind(&path).unwrap();
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/state", get(async || "{}"))).await });
    assert!(words(PATIENCE).await.starts_with("the answer of PATH is not understood: missing field `apiVersion`"));
}

/// The code and the body of one answer.
async fn get_http(address: SocketAddr, path: &str) -> (u16, String) {
    let exchange = async {
        let stream = TcpStream::connect(address).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        let task = tokio::spawn(connection);
        let request = Request::builder().uri(path).header("host", "test").body(Empty::<Bytes>::new()).unwrap();
        let response = sender.send_request(request).await.unwrap();
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        task.abort();
        (code, String::from_utf8(body.to_vec()).unwrap())
    };
    tokio::time::timeout(PATIENCE, exchange).await.expect("an answer in time")
}

async fn serve(node: &Node, pulse: Pulse) -> SocketAddr {
    let status = reader(node);
    let http = Http { metrics: Metrics::new(status.clone()).unwrap(), status, pulse };
    let listener = Http::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(http.serve(listener));
    address
}

#[tokio::test]
async fn metrics_and_health_over_http() {
    let alive = Arc::new(AtomicBool::new(true));
    let speaker = Arc::clone(&alive);
    let address = serve(&Node::serving(), Pulse::new(move || speaker.load(Ordering::Relaxed))).await;

    let (code, text) = get_http(address, "/metrics").await;
    assert_eq!(code, 200);
    assert!(text.contains("vipherald_vip_announced{vip=\"10.0.0.7\"} 1\n"), "{text}");

    let expected = (200, "{\"ok\":true,\"message\":\"the reconcile loop and the speaker are alive\"}".to_owned());
    assert_eq!(get_http(address, "/healthz").await, expected);
    alive.store(false, Ordering::Relaxed);
    let expected = (503, "{\"ok\":false,\"message\":\"the thread of the BGP speaker has ended\"}".to_owned());
    assert_eq!(get_http(address, "/healthz").await, expected);
    assert_eq!(get_http(address, "/other").await.0, 404);

    let error = Http::bind(address).await.unwrap_err();
    assert_eq!(chain(&error), format!("cannot listen on http.address {address}: Address already in use (os error 98)"));
}

#[tokio::test]
async fn ready_once_the_first_plan_is_carried_out() {
    let readyz = async |node: &Node| get_http(serve(node, Pulse::new(|| true)).await, "/readyz").await;
    let ready = (200, "{\"ok\":true,\"message\":\"the first plan is carried out\"}".to_owned());
    let not_ready = |reason: &str| (503, format!("{{\"ok\":false,\"message\":\"{reason}\"}}"));

    let mut node = Node::serving();
    assert_eq!(readyz(&node).await, ready);
    node.speaker.started = false;
    assert_eq!(readyz(&node).await, not_ready("the first plan is not carried out yet"));
    node.desired.as_mut().unwrap().lifecycle = Lifecycle::Drain;
    assert_eq!(readyz(&node).await, not_ready("the node is leaving"));
    node.desired = None;
    node.source.message = "no file was read yet".to_owned();
    assert_eq!(readyz(&node).await, not_ready("what is wanted is not known yet: no file was read yet"));
}

#[tokio::test]
async fn a_socket_that_is_taken_away_is_made_anew_and_no_other_one_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let state_dir = directory.path().join("state");
    let socket = AdminSocket::bind(&state_dir, "taken").unwrap();
    let path = socket.path().to_owned();
    let node = Node::eventful();
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    let server = tokio::spawn(socket.serve(desk(&node, &speaker)));
    fetch(&path, PATIENCE).await.unwrap();
    fs::remove_dir_all(&state_dir).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while fetch(&path, PATIENCE).await.is_err() {
        assert!(Instant::now() < deadline, "it is not made anew");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);

    let question = RoutesQuestion { peer: "nobody".to_owned(), of: RoutesOf::Received, only: None };
    assert_eq!(routes_of(&path, PATIENCE, &question).await.unwrap_err().to_string(), "there is no peer 'nobody'; there is none");
    let question = RoutesQuestion { only: Some("10.0.0.1/8".to_owned()), ..question };
    assert!(routes_of(&path, PATIENCE, &question).await.unwrap_err().to_string().starts_with("'10.0.0.1/8': "));

    // What stands in its place is not ours to remove.
    fs::remove_file(&path).unwrap();
    fs::write(&path, "another's").unwrap();
    server.abort();
    server.await.unwrap_err();
    assert!(path.exists());
}
