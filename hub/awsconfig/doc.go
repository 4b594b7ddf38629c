// Package awsconfig is how the hub calls AWS: one configuration for the process, and
// the credentials and clients that are made of it.
package awsconfig
