// Package browser tests the dashboard as people use it: a real hub over a real API
// server, in Chromium, with keyboard, without script, at three widths, in light and
// dark, and with axe-core on every page.
//
// Contract: `make browser` prepares what is needed (hack/browser.sh) and runs the
// tests; without CAPSTAN_BROWSER, as in `make test`, they are skipped and say so. With
// -screenshots they write docs/images. Nothing waits for a time to pass: what is waited
// for has minutes on a slow machine, and is over at once where all is well.
package browser
