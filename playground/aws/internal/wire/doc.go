// Package wire writes responses in the protocols of AWS that several simulated services
// have: the query protocol with XML, and JSON 1.1.
//
// Contract: a response has the form that the SDK decodes. An error of the connection is
// ignored, as the caller may have closed it.
//
// Locking: none.
package wire
