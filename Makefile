# Railyard. `make run` provisions the lab rack, `make test` proves the code. Both set themselves up.
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

BIN      := $(CURDIR)/.venv/bin
PLAYBOOK := PATH="$(BIN):$$PATH" ansible-playbook
PYTEST   := PATH="$(BIN):$$PATH" pytest
NODES    ?= 4
PROFILE  ?= hgx_h100_roce
# Containers, bridges and what nodes wrote belong to root. Nothing of .venv is needed to take racks down.
AS_ROOT  := $(if $(filter 0,$(shell id -u)),,sudo)
TAKE_DOWN = $(AS_ROOT) python3 -B -m lab_rack down --cache "$(CURDIR)/.cache" >/dev/null
REPORT   := $(CURDIR)/reports/report.html

.PHONY: help setup venv lab reset down run test lint unit molecule site test-slow test-vm bench docs lock clean

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

venv: ## The controller's Python environment
	@tools/setup_venv.sh

setup: venv ## The environment and the system packages of the lab
	@tools/setup_system.sh

lab: setup ## Start the lab rack (NODES=4, PROFILE=hgx_h100_roce)
	@$(PLAYBOOK) playbooks/lab.yml -e lab_state=up -e lab_nodes=$(NODES) -e lab_profile=$(PROFILE)

reset: setup ## Bring the lab rack back to a bare OS
	@$(PLAYBOOK) playbooks/lab.yml -e lab_state=reset -e lab_nodes=$(NODES) -e lab_profile=$(PROFILE)

down: ## Take down every rack and virtual machine that this checkout has started
	@if [ -e .cache/lab ] || [ -e .cache/vm ]; then cd tests/lab && $(TAKE_DOWN); fi

run: lab ## Provision the lab rack end to end; the last line is the report
	@$(PLAYBOOK) site.yml -i inventories/lab
	@test -s "$(REPORT)" && echo "$(REPORT)"

test: setup ## Lint, unit tests, molecule scenarios and the whole rack, with a summary
	@"$(BIN)/python" tools/run_tests.py lint unit molecule site

lint: venv ## Static checks
	@"$(BIN)/python" tools/run_tests.py lint

unit: venv ## Parsers, planner, modules, roles' specs
	@"$(BIN)/python" tools/run_tests.py unit

molecule: setup ## One scenario per role
	@"$(BIN)/python" tools/run_tests.py molecule

site: setup ## The whole rack: convergence, check mode, faults, budget
	@"$(BIN)/python" tools/run_tests.py site

test-slow: setup ## What takes long: every profile, sixteen nodes, InfiniBand simulator
	@"$(BIN)/python" tools/run_tests.py slow

test-vm: setup ## Two virtual machines with real kernels and Soft-RoCE
	@"$(BIN)/python" tools/run_tests.py vm

bench: setup ## What a converged run costs on a rack of its own (NODES=4), and the planner for 1,024 hosts
	@PATH="$(BIN):$$PATH" NODES=$(NODES) "$(BIN)/python" tests/bench/rack_bench.py
	@"$(BIN)/python" tests/bench/planner_scale.py

lock: venv ## Renew requirements.txt from requirements.in
	@tools/lock.sh

clean: down ## Remove what the checkout built, its racks and virtual machines first
	@$(AS_ROOT) rm -rf .venv .cache .ansible reports
