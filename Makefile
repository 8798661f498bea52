# The main targets; `make help` lists them. Settings are variables: make submit DATA=kaggle SEEDS=3
PYTHON ?= python3
# not ?=, which would take a NAME or DATA that the environment happens to hold (WSL sets NAME)
DATA   =
PRESET =
NAME   =
SEEDS  =
JOBS   =
HOURS  =
MODELS =
INIT   =
CLUSTER =
SET    =
SRC    =
FLEET  =
OUT    =
RUN    =
KNOWN  =
SIZE   = small
DEVICES =

# a misspelt variable must not be ignored: make submit SEED=5
SET_UP := PYTHON VENV PY READY TESTED COMPILER TUNING DEVICE PLACER
OF_RUNS := DATA PRESET NAME SEEDS JOBS HOURS MODELS INIT CLUSTER SET
VARIABLES := PYTHON $(OF_RUNS) SRC OUT RUN KNOWN FLEET SIZE DEVICES $(filter-out PYTHON,$(SET_UP))
GIVEN := $(foreach v,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $v))),$v))
UNKNOWN := $(filter-out $(VARIABLES),$(GIVEN))
ifneq ($(strip $(UNKNOWN)),)
$(error no such variable: $(UNKNOWN); known are $(VARIABLES))
endif

# nor one that no target of the command reads: make leaderboard NAME=x
$(foreach t,submit submission features train ensemble smoke kaggle,$(eval READ_$t := $(OF_RUNS)))
READ_leaderboard := SET
READ_figures := NAME
READ_convert := SRC OUT SET
READ_rank := SRC KNOWN RUN OUT SET
READ_tune := SRC FLEET RUN OUT SET
READ_measure := SRC OUT SET
READ_place := SRC DEVICES OUT SET
READ_sample := SIZE SET
READ_data := SET
READ_clean := NAME
GOALS := $(or $(MAKECMDGOALS),help)
READ := $(foreach t,$(GOALS),$(READ_$t))
UNREAD := $(filter-out $(SET_UP) $(READ),$(GIVEN))
ifneq ($(strip $(UNREAD)),)
$(error make $(GOALS) does not read $(UNREAD); $(if $(READ),it reads $(READ),it takes no variables))
endif

# Values are data: Make must not expand them, and recipes read them from the environment, where no shell does
as_typed = $(foreach v,$(1),$(eval override $v := $$(value $v))$(eval export $v))
$(call as_typed,PYTHON DATA PRESET NAME SEEDS JOBS HOURS MODELS INIT CLUSTER SET SRC OUT RUN KNOWN FLEET SIZE DEVICES)
VENV   := .venv
$(call as_typed,VENV)
PY     := $(VENV)/bin/python
READY  := $(VENV)/.ready
TESTED := $(VENV)/.ready-test
COMPILER := $(VENV)/.ready-compiler
TUNING := $(VENV)/.ready-tune
DEVICE := $(VENV)/.ready-device
PLACER := $(VENV)/.ready-placement
$(call as_typed,PY READY TESTED COMPILER TUNING DEVICE PLACER)
# a JAX function needs JAX and the TPU compiler; a file where the compiler estimates
GIVES = $(filter-out %=0 %=False,$(filter $(1),$(patsubst --%,%,$(SET))))
CALLER = $(if $(or $(findstring .py:,$(SRC)),$(call GIVES,estimate=% label=%)),$(COMPILER),$(READY))
FASTSLOW = set -f; "$$PY" -m fastslow
OPTIONS = $${DATA:+"data=$$DATA"} $${PRESET:+"preset=$$PRESET"} $${NAME:+"name=$$NAME"} \
          $${SEEDS:+"seeds=$$SEEDS"} $${JOBS:+"jobs=$$JOBS"} $${HOURS:+"hours=$$HOURS"} \
          $${MODELS:+"predict_with=$$MODELS"} $${INIT:+"init=$$INIT"} $${CLUSTER:+"cluster=$$CLUSTER"} $$SET

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: help submit submission features train ensemble smoke kaggle leaderboard figures convert measure rank tune place sample data test lint clean setup

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z ]+:.*## / {n = split($$1, names, " "); \
	  for (i = 1; i <= n; i++) printf "  make %-12s %s\n", names[i], $$2}' "$(strip $(MAKEFILE_LIST))"
	@echo
	@echo "Settings: DATA=sample|kaggle|FOLDER  PRESET=sample|smoke|kaggle|kaggle-full|tpugraphs-... (docs/baselines.md)  NAME=run  SEEDS=3  HOURS=2  JOBS=2  MODELS=package|runs/x (the setting predict_with)  INIT=package|runs/x  CLUSTER=tcp://HOST:8786|slurm"
	@echo "          SET='gnn.layout.epochs=50 features.layout.hops=1'"

submit: $(READY) ## Features, training, ensemble, checked submission; DATA=kaggle also uploads it
	@$(FASTSLOW) submit $(OPTIONS)

submission features train ensemble: $(READY) ## The same up to that stage, nothing is uploaded
	@$(FASTSLOW) $@ $(OPTIONS)

kaggle: $(READY) ## The same on Kaggle's own two T4: push, follow the log, fetch models and CSV, upload (HOURS=8.5 NAME=on-kaggle)
	@$(FASTSLOW) kaggle $(OPTIONS)

leaderboard: $(READY) ## Every model under runs/: settings, hours, scores, what Kaggle said (SET='sort=test csv=scores.csv')
	@$(FASTSLOW) leaderboard $$SET

figures: $(READY) ## Draw the figures of the pages: from the tables of the benchmarks, and from the sample run, after make submit
	@set -f; PYTHONPATH=benchmarks "$$PY" -m common.table_figures
	@set -f; PYTHONPATH=benchmarks "$$PY" -m common.readme_figures $${NAME:+"$$NAME"}

smoke: $(READY) ## The whole path with next to no training: four to six CPU minutes on slow cores
	@$(FASTSLOW) smoke $(OPTIONS)

convert: $(if $(SRC),$(CALLER)) ## A program of yours to a competition file: SRC=program.hlo or SRC=model.py:make
ifeq ($(SRC),)
	@echo "make convert SRC=program.hlo       an HLO file: HloModuleProto, HloProto, TpuGraphs' .pb, text"
	@echo "make convert SRC=model.py:make     a JAX function: make() returns (function, arguments) for jax.jit"
	@echo "             OUT=FOLDER            a competition folder of your own instead of data/converted"
	@echo "             SET='configs=200 generation=v4 name=mine'"
	@exit 2
else
	@$(FASTSLOW) convert "$$SRC" $${OUT:+"data_root=$$OUT"} $$SET
endif

rank: $(if $(SRC),$(CALLER)) ## Rank a program of yours, fastest configuration first: SRC=program.npz, an HLO file, model.py:make
ifeq ($(SRC),)
	@echo "make rank SRC=program.npz          a competition file with configurations (layout or tile)"
	@echo "make rank SRC=program.hlo          an HLO file, as for make convert; configurations are drawn"
	@echo "make rank SRC=model.py:make        a JAX function, as for make convert"
	@echo "             KNOWN=measured.csv    runtimes that you measured: a CSV with the columns id (of an npz also config), runtime"
	@echo "             RUN=runs/sample       a run of make submit, or the folder of one model; RUN=package: the models in the package; default: your newest complete run, else package"
	@echo "             OUT=FOLDER            a folder of your own instead of data/converted"
	@echo "             SET='configs=5000 collection=layout:nlp:random estimate=10'"
	@exit 2
else
	@$(FASTSLOW) rank "$$SRC" $${KNOWN:+"known=$$KNOWN"} $${RUN:+"run=$$RUN"} $${OUT:+"data_root=$$OUT"} $$SET
endif

MEASURES = $(or $(findstring evaluator=device,$(SET)),$(if $(findstring evaluator=command,$(SET)),,$(filter %.json,$(SRC))))
# the compiler evaluates an HLO file; runtimes of a file and a command need none
REPLAYS = $(or $(findstring evaluator=command,$(SET)),$(findstring evaluator=replay,$(SET)),$(filter %.npz %.json,$(lastword $(SRC))))
SEARCHER = $(if $(MEASURES),$(DEVICE),$(if $(REPLAYS),$(CALLER),$(COMPILER)))

tune: $(if $(SRC)$(FLEET),$(TUNING) $(SEARCHER)) ## Search for the fastest configuration of a program of yours: SRC=, or of many: FLEET=list.csv
ifneq ($(FLEET),)
	@$(FASTSLOW) fleet "$$FLEET" $${RUN:+"run=$$RUN"} $${OUT:+"data_root=$$OUT"} $$SET
else ifneq ($(SRC),)
	@$(FASTSLOW) tune "$$SRC" $${RUN:+"run=$$RUN"} $${OUT:+"data_root=$$OUT"} $$SET
else
	@echo "make tune SRC=program.hlo          an HLO file, as for make convert; the TPU compiler evaluates"
	@echo "make tune SRC=model.py:make        a JAX function, as for make convert"
	@echo "make tune SRC=labelled.npz         replay of a file's runtimes"
	@echo "make tune SRC=space.json           choices of your own: tiles, unrolling, flags (docs/tune_your_program.md)"
	@echo "make tune FLEET=list.csv           many programs, one budget: a CSV with the columns program, weight"
	@echo "             RUN=runs/sample       a run of make submit that guides; RUN=package; default: your newest complete run, else package; RUN=none"
	@echo "             OUT=FOLDER            a folder of your own instead of data/converted"
	@echo "             SET=evaluator=device  measure on this machine: CPU, GPU or TPU through JAX"
	@echo "             SET='evaluations=200 evaluator=command command=./measure.sh'"
	@exit 2
endif

measure: $(if $(SRC),$(DEVICE)) ## Measure configurations of a program on this machine, for KNOWN= of make rank: SRC=program.hlo
	@$(FASTSLOW) measure "$$SRC" $${OUT:+"data_root=$$OUT"} $$SET

place: $(PLACER) $(if $(findstring .py:,$(SRC)),$(DEVICE)) ## A program on several devices, all methods compared: SRC=program.hlo DEVICES=4
	@$(FASTSLOW) place $${SRC:+"$$SRC"} $${DEVICES:+"devices=$$DEVICES"} $${OUT:+"out=$$OUT"} $$SET

sample: $(COMPILER) ## Rebuild the sample competition from kept labels, the rest with the TPU compiler (SIZE=more: 61 to train on; SIZE=large: days)
	@$(FASTSLOW) sample "size=$$SIZE" $$SET

data: $(READY) ## Download the real competition into data/raw (resumes where it stopped)
	@$(FASTSLOW) data $$SET

test: $(TESTED) ## Run the tests
	@"$$PY" -m pytest -n 3 --dist loadfile --no-loadscope-reorder --max-worker-restart=0

lint: $(TESTED) ## Check style and types of the code, and that notebooks carry no outputs
	@"$$VENV/bin/ruff" check .
	@"$$VENV/bin/ruff" format --check .
	@"$$VENV/bin/nbstripout" --verify notebooks/*.ipynb
	@"$$VENV/bin/mypy"

clean: ## Remove what was made here or in FASTSLOW_HOME: NAME=run of one run, NAME=all of every run (keeps data and .venv)
	@cd "$${FASTSLOW_HOME:-.}" || exit 1; case "$$NAME" in \
	  ""|all) set -- features/* features/.[!.]* runs/* runs/.[!.]* submissions/* submissions/.[!.]*;; \
	  */*|.*|README.md) echo "NAME=$$NAME is no name of a run" >&2; exit 1;; \
	  *) set -- "features/$$NAME" "runs/$$NAME" "submissions/$$NAME".csv "submissions/$$NAME".json "submissions/$$NAME".png "submissions/$$NAME".html;; esac; \
	found=; failed=0; for made in "$$@"; do \
	  if [ ! -e "$$made" ] && [ ! -L "$$made" ] || [ "$${made##*/}" = README.md ]; then continue; fi; \
	  found=yes; target=$$(readlink "$$made"); \
	  if [ -z "$$NAME" ]; then echo "$$made" >&2; \
	  elif ! rm -rf -- "$$made"; then failed=1; \
	  else echo "removed $$made$${target:+, a link; not what it leads to: $$target}"; fi; done; \
	case "$$NAME:$$found" in \
	  :|all:*) ;; \
	  :yes) echo "nothing was removed: type make clean NAME=all to remove all of these, or NAME=run for those of one run" >&2; failed=1;; \
	  *:) echo "there is no run $$NAME: make clean lists what there is" >&2; failed=1;; esac; exit $$failed

setup: $(READY) ## Only make the environment

# uv is twice as fast as pip; it does not read pip's find-links by itself. Where it fails, pip does it.
# Nothing is compiled ahead, which takes a minute: Python keeps the bytecode of what it imports, if it may.
# In a terminal the seconds are counted, as long as this shell lives.
# An environment that is there may be of another maker: without pip (uv venv, --without-pip), or of an old Python.
unexport PYTHONDONTWRITEBYTECODE
define install
	@"$$PY" -c 'import os, sys; sys.exit(sys.version_info < (3, 11, 4) and "%s has Python %s, 3.11.4 or newer is needed: rm -r %s, then make PYTHON=python3.12" % (os.environ["VENV"], sys.version.split()[0], os.environ["VENV"]))' || exit 1; \
	 if [ -t 2 ]; then (s=0; while sleep 5 && kill -0 $$$$ 2> /dev/null; do s=$$((s + 5)); printf '%s s\r' $$s; done) >&2 & fi; \
	 if ! "$$PY" -m pip --version > /dev/null 2>&1; then \
	   if command -v uv > /dev/null && \
	     UV_FIND_LINKS="$${PIP_FIND_LINKS:-}" uv pip install -q --python "$$VENV" $(1); then exit 0; fi; \
	   "$$PY" -m ensurepip > /dev/null 2>&1 || \
	     { echo "$$VENV has no pip and its Python cannot install it: rm -r $$VENV, then make setup makes it anew" >&2; exit 1; }; \
	 fi; \
	 "$$PY" -m pip install -q uv && \
	 UV_FIND_LINKS="$${PIP_FIND_LINKS:-}" "$$VENV/bin/uv" pip install -q --python "$$VENV" $(1) || \
	 "$$PY" -m pip install -q --no-compile $(1)
endef

$(VENV)/bin/python:
	@"$$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11, 4) and "Python 3.11.4 or newer is needed: make PYTHON=python3.12")'
	@echo "making the environment $$VENV"
	@"$$PYTHON" -m venv "$$VENV"

$(READY): requirements.txt pyproject.toml | $(VENV)/bin/python
	@echo "setting up $$VENV: about a minute with the CPU build of torch, more where pip finds only the CUDA build"
	$(call install,-r requirements.txt -e .)
	@touch "$@"

$(TESTED): $(READY)
	$(call install,-e .[test])
	@touch "$@"

$(COMPILER): $(READY)
	$(call install,-e .[compiler])
	@touch "$@"

$(TUNING): $(READY)
	$(call install,-e .[tune])
	@touch "$@"

$(DEVICE): $(READY)
	$(call install,-e .[device])
	@touch "$@"

$(PLACER): $(READY)
	$(call install,-e .[placement])
	@touch "$@"
