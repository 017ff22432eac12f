// SPDX-License-Identifier: Apache-2.0
//! A Kubernetes control plane for a test: the real kube-apiserver on a real etcd, and the real controllers.
//!
//! Inputs: the programs, from `KUBEBUILDER_ASSETS` or from `make apiserver`. Outputs: a server on 127.0.0.1 that is ready, kubeconfigs and
//! clients for its administrator and for ServiceAccounts. Invariants: nothing is shared with another test that did not ask for it; its data
//! are gone with it; nodes and pods are objects only, for no kubelet and no scheduler runs.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::json;
use tempfile::TempDir;

use crate::certificates::{Authority, token_keys};
use crate::common::{Process, run, wait_until, wait_until_async};
use crate::port::Port;

/// How long a program may take to come up on a machine that has other work.
const PATIENCE: Duration = Duration::from_secs(120);
/// The controllers that run, as `--controllers` has them.
const CONTROLLERS: [&str; 9] = [
    "daemonset-controller",
    "disruption-controller",
    "endpointslice-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "statefulset-controller",
];
/// The user of the group `system:masters`.
const ADMINISTRATOR: &str = "administrator";

/// A control plane: an API server and the controllers.
pub(crate) struct ControlPlane {
    _controllers: Controllers,
    server: ApiServer,
}

impl ControlPlane {
    /// Starts one.
    pub(crate) fn start() -> Self {
        let server = ApiServer::start();
        Self { _controllers: Controllers::start(&server), server }
    }

    /// The one that the tests of a program share: it starts with the first that asks and ends with the last that has it. Each test works in
    /// namespaces of its own ([`ApiServer::namespace`]) and restarts nothing.
    pub(crate) fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<ControlPlane>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let started = Arc::new(Self::start());
            *shared = Arc::downgrade(&started);
            started
        })
    }

    /// Its API server.
    pub(crate) fn server(&self) -> &ApiServer {
        &self.server
    }
}

/// An API server with an etcd of its own.
pub(crate) struct ApiServer {
    process: Mutex<Option<Process>>,
    _etcd: Process,
    port: Port,
    authority: Authority,
    directory: TempDir,
}

impl ApiServer {
    /// Starts one and waits until it is ready.
    pub(crate) fn start() -> Self {
        let directory = TempDir::with_prefix("vipherald-api-").unwrap();
        let authority = Authority::new();
        let (serving, tokens) = (authority.server(), token_keys());
        let files = [
            ("ca.crt", authority.certificate()),
            ("server.crt", &serving.public),
            ("server.key", &serving.private),
            ("tokens.pub", &tokens.public),
            ("tokens.key", &tokens.private),
            ("users.csv", &format!("{ADMINISTRATOR},{ADMINISTRATOR},{ADMINISTRATOR},system:masters\n")),
        ];
        for (name, text) in files {
            fs::write(directory.path().join(name), text).unwrap();
        }
        let etcd = start_etcd(directory.path());
        let server = Self { process: Mutex::default(), _etcd: etcd, port: Port::reserve(), authority, directory };
        fs::write(server.path("administrator.conf"), server.kubeconfig(ADMINISTRATOR)).unwrap();
        server.resume();
        server
    }

    /// Kills the server; etcd keeps what it had. Connections are refused until [`ApiServer::resume`].
    pub(crate) fn stop(&self) {
        self.process.lock().unwrap().take().unwrap().kill();
    }

    /// Starts the server on what etcd has, at the same address, and waits until it is ready.
    pub(crate) fn resume(&self) {
        let mut process = self.process.lock().unwrap();
        assert!(process.is_none(), "the API server runs already");
        let started = Process::start(&mut self.command());
        block_on(async || {
            let client = self.administrator().await;
            wait_until_async("the API server is ready", PATIENCE, async || {
                assert!(started.is_running(), "the API server has ended");
                let request = http::Request::get("/readyz").body(Vec::new()).unwrap();
                client.request_text(request).await.is_ok()
            })
            .await;
        });
        *process = Some(started);
    }

    fn command(&self) -> Command {
        let mut command = Command::new(program("kube-apiserver"));
        command.args([
            "--allow-privileged=true",
            "--authorization-mode=Node,RBAC",
            "--bind-address=127.0.0.1",
            // Documentation's (RFC 5737): the endpoint of the Service `kubernetes`, which must not be a loopback address.
            "--advertise-address=192.0.2.1",
            "--permit-port-sharing=true",
            "--profiling=false",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/108",
        ]);
        command.arg(format!("--etcd-servers={}", etcd_url(self.directory.path())));
        command.arg(format!("--secure-port={}", self.address().port()));
        for (option, file) in [
            ("service-account-key-file", "tokens.pub"),
            ("service-account-signing-key-file", "tokens.key"),
            ("tls-cert-file", "server.crt"),
            ("tls-private-key-file", "server.key"),
            ("token-auth-file", "users.csv"),
        ] {
            command.arg(format!("--{option}={}", self.path(file).display()));
        }
        command
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Who signed its certificate.
    pub(crate) fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Its process, to look at.
    pub(crate) fn id(&self) -> nix::unistd::Pid {
        self.process.lock().unwrap().as_ref().unwrap().id()
    }

    /// A kubeconfig for whoever has this token.
    pub(crate) fn kubeconfig(&self, token: &str) -> String {
        kubeconfig(self.address(), &self.path("ca.crt"), token)
    }

    /// A client for whoever has this token.
    pub(crate) async fn client(&self, token: &str) -> Client {
        client(&self.kubeconfig(token)).await
    }

    /// A client that may do everything.
    pub(crate) async fn administrator(&self) -> Client {
        self.client(ADMINISTRATOR).await
    }

    /// The kubeconfig of the administrator, as a file.
    pub(crate) fn administrator_kubeconfig(&self) -> PathBuf {
        self.path("administrator.conf")
    }

    /// A file of its directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A token of a ServiceAccount, which must exist, as its pod would get.
    pub(crate) async fn service_account_token(&self, namespace: &str, name: &str) -> String {
        let accounts = Api::<ServiceAccount>::namespaced(self.administrator().await, namespace);
        let request = TokenRequest {
            spec: TokenRequestSpec { expiration_seconds: Some(3600), ..TokenRequestSpec::default() },
            ..TokenRequest::default()
        };
        let answer = accounts.create_token_request(name, &PostParams::default(), &request).await.unwrap();
        answer.status.unwrap().token
    }

    /// Makes a namespace, and waits until pods can be created in it, which takes the controller of ServiceAccounts.
    pub(crate) async fn namespace(&self, name: &str) {
        let client = self.administrator().await;
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        Api::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
        let accounts = Api::<ServiceAccount>::namespaced(client, name);
        let exists = async || accounts.get_opt("default").await.unwrap().is_some();
        wait_until_async("the namespace has its default ServiceAccount", PATIENCE, exists).await;
    }

    /// `kubectl` as the administrator, with these words and this text as its input; its output. It must succeed.
    pub(crate) fn kubectl(&self, words: &[&str], input: &str) -> String {
        let mut command = Command::new(program("kubectl"));
        command.env("KUBECONFIG", self.administrator_kubeconfig()).env("KUBECACHEDIR", self.path("kubectl")).args(words);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "kubectl {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

/// The controllers of a cluster, as far as tests need them.
pub(crate) struct Controllers {
    _process: Process,
}

impl Controllers {
    /// Starts them. They have no state that could be waited for: what they do is seen in objects.
    pub(crate) fn start(server: &ApiServer) -> Self {
        let mut command = Command::new(program("kube-controller-manager"));
        command.args(["--leader-elect=false", "--secure-port=0", "--kube-api-qps=1000", "--kube-api-burst=1000"]);
        command.arg(format!("--controllers={}", CONTROLLERS.join(",")));
        command.arg(format!("--kubeconfig={}", server.administrator_kubeconfig().display()));
        command.arg(format!("--service-account-private-key-file={}", server.path("tokens.key").display()));
        Self { _process: Process::start(&mut command) }
    }
}

/// A client of an API server, from the text of a kubeconfig. It asks once, whatever comes back.
pub(crate) async fn client(kubeconfig: &str) -> Client {
    let parsed = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let mut config = Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

/// A kubeconfig with one server, one authority and one token; JSON, which is YAML.
pub(crate) fn kubeconfig(server: SocketAddr, authority: &Path, token: &str) -> String {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": format!("https://{server}"), "certificate-authority": authority}}],
        "users": [{"name": "test", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    });
    format!("{config:#}\n")
}

/// Where a program of the control plane is.
pub(crate) fn program(name: &str) -> PathBuf {
    let named = std::env::var_os("KUBEBUILDER_ASSETS").map(|assets| Path::new(&assets).join(name)).filter(|path| path.exists());
    named.unwrap_or_else(|| {
        let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/apiserver/build");
        Path::new(run(Command::new(build).arg("--find")).trim_end()).join(name)
    })
}

/// Runs this on a thread and a runtime of its own, from wherever it is called.
pub(crate) fn block_on<T: Send>(body: impl AsyncFnOnce() -> T + Send) -> T {
    let run = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(body());
    thread::scope(|scope| scope.spawn(run).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Starts an etcd that clients reach by a socket in this directory, where its data are, too.
fn start_etcd(directory: &Path) -> Process {
    let mut command = Command::new(program("etcd"));
    command.arg(format!("--data-dir={}", directory.join("etcd").display()));
    command.arg(format!("--listen-client-urls={}", etcd_url(directory)));
    // Refused as a path; nobody uses it. The peers' port is the kernel's choice: there are no peers.
    command.args(["--advertise-client-urls=http://127.0.0.1:0", "--listen-peer-urls=http://127.0.0.1:0"]);
    command.args(["--log-level=warn", "--unsafe-no-fsync"]);
    let etcd = Process::start(&mut command);
    wait_until("etcd listens", PATIENCE, || {
        assert!(etcd.is_running(), "etcd has ended");
        socket(directory).exists()
    });
    etcd
}

fn etcd_url(directory: &Path) -> String {
    format!("unix://{}", socket(directory).display())
}

fn socket(directory: &Path) -> PathBuf {
    directory.join("etcd.sock")
}
