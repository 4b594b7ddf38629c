// Package browser tests the dashboard as users use it: a real hub over a real API
// server, in Chromium, with keyboard, without script, at three widths, in light and
// dark, and with axe-core on every page.
//
// Contract: `make browser` installs the dependencies (hack/browser.sh) and runs the tests.
// Without CAPSTAN_BROWSER, as in `make test`, they are skipped with a message. With
// -screenshots they write docs/images. No test waits for a fixed time: each wait ends with
// its condition, and has a timeout of minutes for slow machines.
package browser
