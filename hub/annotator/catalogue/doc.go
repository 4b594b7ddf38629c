// Package catalogue knows what the instance types of each region of AWS offer.
//
// Purpose: a reconciler asks for the capacity of a type and gets it from memory;
// calls of EC2 are few, whatever is asked.
package catalogue
