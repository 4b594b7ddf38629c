package goaws

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/Admiral-Piett/goaws/app/gosqs"
	"github.com/Admiral-Piett/goaws/app/models"
	"github.com/Admiral-Piett/goaws/app/router"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/capstan-hub/capstan/hub/instancestate/queue/queuetest"
	"github.com/capstan-hub/capstan/internal/sdkhttp"
	"github.com/capstan-hub/capstan/playground/aws/sqs/sqstest"
)

// client of goaws, and its endpoint.
var (
	client   *sqs.Client
	endpoint string
)

// goaws has its queues in global variables: there is one server for all tests.
func TestMain(m *testing.M) {
	const region = "eu-west-1"
	server := httptest.NewServer(router.New())
	endpoint = server.URL
	models.CurrentEnvironment.Host = "127.0.0.1"
	models.CurrentEnvironment.Port = server.URL[strings.LastIndexByte(server.URL, ':')+1:]
	models.CurrentEnvironment.AccountID = "111122223333"
	models.CurrentEnvironment.Region = region
	quit := make(chan bool)
	go gosqs.PeriodicTasks(time.Second, quit)
	client = sqs.New(sqs.Options{
		Region: region, BaseEndpoint: aws.String(server.URL), HTTPClient: sdkhttp.Client{Next: http.DefaultClient}, Retryer: aws.NopRetryer{},
		Credentials: credentials.NewStaticCredentialsProvider("a", "b", ""),
	})
	code := m.Run()
	close(quit)
	server.Close()
	os.Exit(code)
}

func TestBehaves(t *testing.T) {
	sqstest.Behaves(t, client, sqstest.Lacks{ReceiveCount: true, SendBatchResult: true, VisibilityBatch: true, DeadLetterSources: true})
}

func TestConsumes(t *testing.T) {
	queuetest.Consumes(t, client, queuetest.Lacks{VisibilityBatch: true})
}
