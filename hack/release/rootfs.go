package main

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// The user of the images, as in the Deployments.
const (
	userID   = 65532
	userName = "nonroot"
)

// certificatesFile is the first path at which crypto/x509 looks on Linux. Mount another file on
// it to trust other authorities.
const certificatesFile = "etc/ssl/certs/ca-certificates.crt"

// rootfs returns all files of an image but the binary.
func rootfs() ([]entry, error) {
	certificates, err := rootCertificates()
	if err != nil {
		return nil, err
	}
	passwd := fmt.Sprintf("root:x:0:0:root:/:/sbin/nologin\n%s:x:%d:%d:%s:/:/sbin/nologin\n", userName, userID, userID, userName)
	group := fmt.Sprintf("root:x:0:\n%s:x:%d:\n", userName, userID)
	return []entry{
		{name: "etc/", mode: 0o755},
		{name: "etc/group", mode: 0o644, content: []byte(group)},
		{name: "etc/passwd", mode: 0o644, content: []byte(passwd)},
		{name: "etc/ssl/", mode: 0o755},
		{name: "etc/ssl/certs/", mode: 0o755},
		{name: certificatesFile, mode: 0o644, content: certificates},
		// For use without readOnlyRootFilesystem. The Deployment mounts a volume where it writes.
		{name: "tmp/", mode: 0o777 | sticky},
	}, nil
}

// rootCertificates returns Mozilla's root certificates, as PEM with the name of each one before
// it. They are those of golang.org/x/crypto/x509roots, whose version go.mod has. A root that
// Mozilla trusts only for older certificates is left out: PEM cannot have that condition.
func rootCertificates() ([]byte, error) {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		certificate, err := x509.ParseCertificate(root.Certificate)
		if err != nil {
			return nil, fmt.Errorf("root certificate %x: %w", sha256.Sum256(root.Certificate), err)
		}
		fmt.Fprintf(&out, "# %s\n", certificate.Subject)
		if err := pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}
