# The one entry: everything that continuous integration does is a target here.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build

CARGO_DENY_VERSION := 0.20.2
CARGO_CYCLONEDX_VERSION := 0.5.9
# Without optimisation, since they run for seconds; what both need is built once.
INSTALL_TOOL = CARGO_TARGET_DIR=$${XDG_CACHE_HOME:-$$HOME/.cache}/vipherald/tools cargo install --locked --debug
# As it is shipped.
SHIPPED := --config .cargo/static.toml
BUILT = $(or $(CARGO_TARGET_DIR),target)/$(shell rustc --print host-tuple)
INSTALL_BINARY = install -D -m 755 $(BUILT)/$(1)/vipherald target/bin/vipherald
# What cargo builds is run in a kernel with IPVS.
IN_GUEST := --config 'target."cfg(target_os = \"linux\")".runner = "tests/uml/run-in-vm -t 600 --"'

.PHONY: apiserver bench build bundle demo test test-fast soak golden interop ci fmt clippy doc deny packages packages-demo tools uml-kernel helm

build:                ## the binary, target/bin/vipherald: optimised, and linked statically
	cargo build $(SHIPPED) --release --locked
	$(call INSTALL_BINARY,release)

demo: packages-demo build   ## two racks on this machine: routes, spread of 1,000 requests, stop and restart of a node
	labs/run multi-rack

test: packages uml-kernel apiserver helm tools   ## all tests; needs root
	cargo build $(SHIPPED) --profile quick --locked --bins --examples
	$(call INSTALL_BINARY,quick)
	cargo test --workspace --locked --no-fail-fast
	cargo run $(SHIPPED) --profile quick --locked --example bench -- check
	cargo run $(SHIPPED) --profile quick --locked $(IN_GUEST) --example bench -- check balance
	python3 -m unittest discover -s labs -p 'test_*.py'
	labs/run --check

test-fast:            ## what needs neither root nor a peer
	cargo test --workspace --locked --lib --bins --test plan --test convergence --test balancing_model --test routing_model --test config --test cli \
	    --test virtual_services --test malformed_attributes --test differential --test fuzz_corpus --test golden --test simulation

soak: packages uml-kernel apiserver   ## the long forms of tests: all combinations, an API server that is away for an hour; needs root
	VIPHERALD_SOAK=1 cargo test --locked --test uml_schedulers
	VIPHERALD_SOAK=1 cargo test --locked --test kubernetes_status -- an_api_server_that_is_away_leaves_the_dataplane_alone

bench: packages uml-kernel apiserver   ## routes to a router and through a reflector, changes, many virtual services, a large cluster; needs root and a quiet machine
	cargo build $(SHIPPED) --release --locked --bins --examples
	cargo run $(SHIPPED) --release --locked --example bench -- $(PARTS)
	$(if $(PARTS),,cargo run $(SHIPPED) --release --locked $(IN_GUEST) --example bench -- balance)

golden: helm          ## writes the goldens again and shows what changed
	UPDATE_GOLDENS=1 cargo test --locked --test plan
	UPDATE_GOLDENS=1 cargo test --locked --test helm -- rendered:: schema::
	git diff --stat -- charts examples tests

interop: packages     ## the speaker with every router, and the table in docs/interoperability.md written again; needs root
	UPDATE_GOLDENS=1 cargo test --locked --test interop
	git diff --stat -- docs

# Two at a time: what others make is built beside what cargo checks, and all of it before the first test.
ci: packages fmt
	$(MAKE) -j2 --output-sync=target apiserver helm uml-kernel tools clippy doc deny
	$(MAKE) test

fmt:
	cargo fmt --all --check

clippy:
	cargo clippy --workspace --all-targets --locked -- -D warnings
	! grep -L '^\[lints\]' Cargo.toml */Cargo.toml | grep .

doc:
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --locked

deny: tools
	cargo deny --locked check bans licenses sources

tools:                ## cargo-deny and cargo-cyclonedx; once
	cargo deny --version 2>/dev/null | grep -q ' $(CARGO_DENY_VERSION)$$' || $(INSTALL_TOOL) cargo-deny@$(CARGO_DENY_VERSION)
	cargo cyclonedx --version 2>/dev/null | grep -q ' $(CARGO_CYCLONEDX_VERSION)$$' || $(INSTALL_TOOL) cargo-cyclonedx@$(CARGO_CYCLONEDX_VERSION)

bundle: build helm tools   ## chart, image, list of components and licences for sites without a registry: target/bundle
	tests/install-packages image/packages.txt
	rm -rf target/bundle
	HELM=$$(tests/helm/build)/helm image/bundle target/bundle

uml-kernel: packages  ## the kernel with IPVS that tests run in; once, 6.5 minutes, kept outside of the checkout
	tests/uml/build-kernel

apiserver:            ## the Kubernetes control plane of the tests; once, kept outside of the checkout
	nice -n 5 tests/apiserver/build

helm:                 ## Helm for the tests of the chart; once, 4 minutes, kept outside of the checkout
	nice -n 5 tests/helm/build

packages:
	tests/install-packages labs/packages.txt tests/packages.txt

packages-demo:
	tests/install-packages labs/packages.txt
