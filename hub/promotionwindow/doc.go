// Package promotionwindow shows the state of PromotionWindows in their status.
//
// # Purpose
//
// An administrator sees whether a window is valid, whether it is active, when that changes, and how many
// Pipelines it selects.
//
// # Contract
//
// The status is for users: nothing is decided by it. Promotions are judged by the spec of the
// windows, which package hub/promotion reads before each step. So a window has its effect also
// while this reconciler does not run.
//
// # Locking
//
// None. One worker reconciles all windows.
//
// # Trade-offs
//
// A change of a Pipeline or a namespace reconciles every window, a second later and once for all
// changes until then. There are few windows, and no index by their selectors.
package promotionwindow
