package provider_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	SetDefaultEventuallyTimeout(10 * time.Second) // The machine may be busy.
	goleak.VerifyTestMain(m)
}
