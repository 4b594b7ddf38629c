// Package helmold keeps the packages that ../sync.sh generates a CRD from in go.mod.
package helmold

import (
	_ "github.com/fluxcd/helm-controller/api/v2"
	_ "github.com/fluxcd/helm-controller/api/v2beta1"
	_ "github.com/fluxcd/helm-controller/api/v2beta2"
)
