// Package goaws tests playground/aws/sqs, hub/instancestate/queue and the SQS sink against
// goaws, an independent implementation of SQS. The tests are the same as with the
// simulator, except for features that goaws lacks.
package goaws
