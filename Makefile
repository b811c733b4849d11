# What a person or a CI does here; `make` lists it. Each line is a plain command that can also be typed.

CARGO ?= cargo
TESTBED := tests/testbed/testbed
FEATURES := failpoints,testbed-standins/controller

.PHONY: help demo test unit lint deny crds testbed-up testbed-down

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## boot the testbed and watch an exporter come and go (KEEP=1 leaves the testbed up)
	@tests/testbed/demo

test: ## lint, boot the testbed, run all tests (KEEP=1 leaves the testbed up)
	@tests/run

unit: ## the tests that need no testbed
	$(CARGO) test --lib --bins --test crds --test docs --test house
	$(CARGO) test --workspace --exclude exporter-set-controller

lint: ## rustfmt and Clippy, with and without the features that only tests use
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) clippy --workspace --all-targets --features $(FEATURES) -- -D warnings

deny: ## licences, sources and duplicates of the dependencies, as far as cargo-deny can tell offline
	@command -v cargo-deny >/dev/null || { echo "make deny needs cargo-deny: cargo install cargo-deny --locked" >&2; exit 1; }
	$(CARGO) deny --all-features check bans licenses sources

crds: ## write crds/ anew from the Rust types
	UPDATE=1 $(CARGO) test --quiet --test crds

testbed-up: ## boot the control plane, two lab hosts and one without Podman
	@$(TESTBED) up --hosts 2 --bare-host

testbed-down: ## take them down
	@$(TESTBED) down
