// Package messagetemplate parses and executes the templates that users write for chat messages.
//
// Purpose: the schema of EventingBackends validates such a template, and the sinks execute it. Both
// use the same rules.
//
// Contract: the syntax is a part of Go's text/template: text, fields, variables, comments, if, else,
// with, parentheses, and the functions and, or, not, eq, ne and trunc. The fields are those of
// Fields; all are texts, and empty when an event has no value for them. Every value that a template
// outputs goes through the caller's escape function; the literal text of the template does not,
// because its author writes in the markup of the chat service. Parse refuses all other syntax and
// unknown fields in every branch, and executes the template on two samples: an event with all
// fields and an event with the least. Errors quote the template, which is no secret.
//
// Trade-offs: range, define, template, block and the print functions are refused. Users who may
// write an EventingBackend write the template, and the hub executes it: without them, the time and the size
// of the output are proportional to the length of the template.
//
// Locking: none. A Template is immutable; several goroutines may execute it.
package messagetemplate
