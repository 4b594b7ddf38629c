package message

import (
	"encoding/json"
	"regexp"
)

// Source and detail-type of the test events of `capstan aws-eventing check`. PutEvents accepts
// no source that begins with "aws.".
const (
	TestSource     = "dev.capstan"
	TestDetailType = "Capstan Test"
)

// TestDetail is the detail of a test event.
type TestDetail struct {
	// ID is random. The sender finds the event by it.
	ID string `json:"id"`
}

// testIDs bounds what a sender can write into the status of an EventingBackend.
var testIDs = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)

var (
	testAccounts = regexp.MustCompile(`^[0-9]{12}$`)
	testRegions  = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)
)

// test decodes a test event. It changes no label. Without a valid id it is ignored.
func (d decoder) test(e EventBridgeEvent) (Message, error) {
	var detail TestDetail
	m := ignore(CapstanTest, "test")
	if json.Unmarshal(e.Detail, &detail) == nil && testIDs.MatchString(detail.ID) && testAccounts.MatchString(e.Account) && testRegions.MatchString(e.Region) {
		m.TestID = detail.ID
	}
	return m, nil
}
