package controlplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// certify makes the API server present a certificate for the names to clients that ask for one of
// them. It returns the directory of the certificate and the certificate's authority in PEM format.
func certify(arguments *envtest.Arguments, names []string) (dir string, authority []byte, err error) {
	const mode = 0o600
	dir, err = os.MkdirTemp("", "capstan-controlplane-names-")
	if err != nil {
		return "", nil, fmt.Errorf("creating the certificate of %q: %w", names, err)
	}
	defer func() {
		if err != nil {
			dir, err = "", errors.Join(fmt.Errorf("creating the certificate of %q: %w", names, err), os.RemoveAll(dir))
		}
	}()
	chain, key, err := cert.GenerateSelfSignedCertKey(names[0], nil, names[1:])
	if err != nil {
		return dir, nil, err
	}
	certificates, err := cert.ParseCertsPEM(chain)
	if err != nil {
		return dir, nil, err
	}
	if authority, err = cert.EncodeCertificates(certificates[len(certificates)-1]); err != nil {
		return dir, nil, err
	}
	certificate, private := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	if err := errors.Join(os.WriteFile(certificate, chain, mode), os.WriteFile(private, key, mode)); err != nil {
		return dir, nil, err
	}
	arguments.Append("tls-sni-cert-key", certificate+","+private)
	return dir, authority, nil
}
