// Package browser tests the dashboard as people use it: a real hub over a real API
// server, in Chromium, with keyboard, without script, at three widths, in light and
// dark, and with axe-core on every page.
//
// Contract: `make browser` prepares what is needed (hack/browser.sh) and runs the
// tests. Where Chromium or axe-core is missing they are skipped and say so, unless
// CAPSTAN_BROWSER is set, as `make browser` does. With -screenshots they write
// docs/images.
package browser
