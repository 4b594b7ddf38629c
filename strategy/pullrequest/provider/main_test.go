package provider_test

import (
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/playground/leaks"
)

func TestMain(m *testing.M) {
	SetDefaultEventuallyTimeout(10 * time.Second) // The machine may be busy.
	os.Exit(leaks.MainAll(m.Run))
}
