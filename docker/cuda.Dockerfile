# The GPU image of steady: steady-cuda for the roles rollout, trainer and standby on NVIDIA GPUs.
#
#   docker build -f docker/cuda.Dockerfile -t steady:cuda .
#
# The libraries that steady-cuda opens when it starts (NVRTC, cuBLASLt, cuDNN 9) come from NVIDIA's runtime image; the driver's libcuda and
# NVML come from the host through the NVIDIA container toolkit. A driver for CUDA 12.9 or newer is needed (575).

FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# As `make build-cuda`: an own header and a stand-in library, no file of NVIDIA.
RUN make build-cuda VCS=false && install -D bin/steady-cuda /out/steady

FROM nvidia/cuda:12.9.1-cudnn-runtime-ubuntu24.04
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && ldconfig && ldconfig -p > /tmp/libraries \
    && grep -F libnvrtc.so.12 /tmp/libraries && grep -F libcublasLt.so.12 /tmp/libraries && grep -F libcudnn.so.9 /tmp/libraries \
    && rm /tmp/libraries \
    && useradd --create-home --uid 10001 --user-group steady \
    && install -d -o steady -g steady /data /cache
COPY --from=build /out/steady /usr/local/bin/steady
# compute for CUDA, utility for NVML.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility XDG_CACHE_HOME=/cache
USER 10001:10001
WORKDIR /data
VOLUME ["/data", "/cache"]
ENTRYPOINT ["steady"]
CMD ["doctor", "--worker"]
