// Command release makes what users install, on a machine that has Go and no container engine:
//
//	release image    images of the hub and of capa-annotator, as OCI archives
//	release all      the images, the chart, install.yaml, archives of the CLI, the krew manifest,
//	                 bills of materials and checksums
//	release push     pushes the images and the chart of `release all` to their registries
//
// `make image` and `make release` call it. docs/releasing.md has the list of files.
//
// An image has no base image: a static binary needs root certificates, a user and /tmp, which
// rootfs.go writes. Time zones are in the binary (internal/window imports time/tzdata).
//
// The files depend only on the source, the toolchain of Go, the version and the time of the
// commit: each timestamp is the commit's time, or SOURCE_DATE_EPOCH where it is set. The same
// inputs give the same bytes in every directory.
package main
