// Package notice turns an event into text for people.
//
// Purpose: sinks for people (chat, Flux notifications) need one line that says what happened,
// an explanation, and links. A CloudEvent has data in fields. The rules for the text are only
// here.
//
// Contract: Of returns the Notice of every event of the catalogue (package event), and an error
// for any other event. Text from objects, such as messages of a Promotion, is used literally: a
// sink must escape it for its own markup. Links have the address of the dashboard; without one,
// only the link of the pull request is set.
//
// Locking: none; everything is a value.
package notice
