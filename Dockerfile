# syntax=docker/dockerfile:1
# The hub and capa-annotator, static binaries on distroless, for linux/amd64 and
# linux/arm64:
#
#   docker buildx build --platform=linux/amd64,linux/arm64 \
#     --build-arg=VERSION=$(git describe --tags --always) --tag=REGISTRY/capstan:TAG --push .
#
# capa-annotator alone: the same with --target=capa-annotator.

# Cross-compiled on the builder's architecture, without emulation.
FROM --platform=$BUILDPLATFORM docker.io/library/golang:1.26.8-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
COPY api/go.mod api/go.sum ./api/
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG TARGETOS TARGETARCH VERSION=devel
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -buildvcs=false -ldflags="-s -w -X github.com/capstan-hub/capstan/cmd/capstan/cli.release=$VERSION" \
    -o /out/ ./cmd/capstan ./cmd/capa-annotator

# The base image has no shell and no package manager, but has root certificates. The user is
# 65532, as in the Deployment.
FROM gcr.io/distroless/static-debian12:nonroot AS capa-annotator
COPY --from=build /out/capa-annotator /capa-annotator
USER 65532:65532
ENTRYPOINT ["/capa-annotator"]

FROM gcr.io/distroless/static-debian12:nonroot AS capstan
COPY --from=build /out/capstan /capstan
USER 65532:65532
ENTRYPOINT ["/capstan"]
