package git

import (
	"crypto/rand"
	"strconv"
	"strings"
)

// config is Gitea's app.ini, without delays, network access and scheduled jobs, and without
// everything that a pull request does not need.
func (s *Server) config(port int) string {
	return strings.NewReplacer(
		"$DIR", s.dir,
		"$FILES", staticFiles(),
		"$HOST", host,
		"$PORT", strconv.Itoa(port),
		"$URL", s.url,
		"$KEY", rand.Text(),
		"$TOKEN", rand.Text(),
		"$JWT", rand.Text(),
	).Replace(appINI)
}

// Its queues stay on disk, the default. In a queue in memory an item can be lost: it is
// pushed before it is recorded, and recorded after it was taken. Its pull request then
// stays "being checked" permanently.
//
// Gitea refuses to run as root unless configured, and CI containers run as root.
const appINI = `
APP_NAME = Capstan playground
RUN_MODE = prod
WORK_PATH = $DIR
I_AM_BEING_UNSAFE_RUNNING_AS_ROOT = true

[server]
PROTOCOL = https
HTTP_ADDR = $HOST
HTTP_PORT = $PORT
ROOT_URL = $URL/
LOCAL_ROOT_URL = $URL/
CERT_FILE = $DIR/tls.crt
KEY_FILE = $DIR/tls.key
STATIC_ROOT_PATH = $FILES
APP_DATA_PATH = $DIR/data
DISABLE_SSH = true
LFS_START_SERVER = false
OFFLINE_MODE = true

[database]
DB_TYPE = sqlite3
PATH = $DIR/gitea.db
SQLITE_JOURNAL_MODE = WAL

[repository]
ROOT = $DIR/repositories
DEFAULT_BRANCH = main

[security]
INSTALL_LOCK = true
SECRET_KEY = $KEY
INTERNAL_TOKEN = $TOKEN

[oauth2]
ENABLED = false
JWT_SECRET = $JWT

[service]
DISABLE_REGISTRATION = true

[indexer]
ISSUE_INDEXER_TYPE = db

[log]
MODE = console
LEVEL = Warn

[cron]
ENABLED = false

[cron.update_checker]
ENABLED = false

[session]
PROVIDER = memory

[actions]
ENABLED = false

[packages]
ENABLED = false

[mailer]
ENABLED = false
`
