package agentd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/net/netutil"
	"golang.org/x/sys/unix"

	"weir/deadline"
	"weir/law"
)

// Each VM or container has a socket of its own, in a directory of its own that a container can mount. So the socket says who asks. The
// directories are in one that only this process's user can enter: other programs of the host have no way to a socket.

const (
	deadlinesDir  = "/run/weir/deadlines"
	socketFile    = "deadline.sock"
	declareConns  = 16              // of a VM at a time, at its socket and at the metadata address each
	declareAnswer = 5 * time.Second // that an answer may take
)

// sockets are those of the VMs. The agent's goroutine owns them.
type sockets struct {
	dir  string
	d    *deadlines
	log  *slog.Logger
	open map[law.VM]*socket
	dirs map[law.VM]string // directories of the VMs in the file; containers have them mounted
	said map[law.VM]string
}

type socket struct {
	dir    string
	server *http.Server
}

func newSockets(dir string, d *deadlines, log *slog.Logger) *sockets {
	return &sockets{dir: dir, d: d, log: log, open: map[law.VM]*socket{}, dirs: map[law.VM]string{}, said: map[law.VM]string{}}
}

// follow makes the sockets those of the VMs in the list. file has the VMs of the configuration.
func (s *sockets) follow(list map[law.VM]addedVM, file []VM) {
	if s == nil {
		return
	}
	s.d.become(s.listenAt(list))
	s.removeDirs(file)
}

// listenAt opens and closes sockets, and returns the VMs of the list.
func (s *sockets) listenAt(list map[law.VM]addedVM) (vms []VM) {
	for vm, v := range list {
		vms = append(vms, v.VM)
		if s.open[vm] != nil {
			continue
		}
		one, err := s.listen(vm)
		if err != nil {
			if text := err.Error(); s.said[vm] != text {
				s.said[vm] = text
				s.log.Warn("a VM cannot declare deadlines", "vm", vm, "error", err)
			}
			continue
		}
		s.open[vm] = one
		s.log.Info("a VM can declare deadlines", "vm", vm, "socket", filepath.Join(one.dir, socketFile))
	}
	for vm, one := range s.open {
		if _, still := list[vm]; !still {
			one.close()
			one.remove()
			delete(s.open, vm)
		}
	}
	return vms
}

// removeDirs removes the directories of VMs that left the file.
func (s *sockets) removeDirs(file []VM) {
	for vm, dir := range s.dirs {
		if s.open[vm] == nil && !slices.ContainsFunc(file, func(v VM) bool { return v.Number == vm }) {
			_ = os.Remove(dir) // fails if the operator has put something there
			delete(s.dirs, vm)
		}
	}
}

// listen opens the socket of a VM. A container that has mounted the directory finds the socket of the next process there.
func (s *sockets) listen(vm law.VM) (*socket, error) {
	if err := privateDir(s.dir); err != nil {
		return nil, err
	}
	dir := filepath.Join(s.dir, fmt.Sprint(vm))
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	s.dirs[vm] = dir
	if err := os.Chmod(dir, 0o755); err != nil { // the unit's UMask is 0077
		return nil, err
	}
	l, err := bindSocket(filepath.Join(s.dir, fmt.Sprintf("%d.new", vm)), filepath.Join(dir, socketFile))
	if err != nil {
		return nil, err
	}
	one := &socket{dir, newDeadlineServer(s.d.handler(vm), s.log)}
	go func() { _ = one.server.Serve(netutil.LimitListener(l, declareConns)) }() // it ends with close
	return one, nil
}

// bindSocket listens at path, whose directory a container may write to. The socket gets its mode under another name, which only this
// process's user reaches, and is then moved to path. If it got its mode at path, the container could put a symbolic link there before,
// and the file that this points at would get the mode.
func bindSocket(private, path string) (*net.UnixListener, error) {
	if err := os.Remove(private); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: private})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // another process may have taken over
	// Any user of the container may declare: the directory above keeps everybody else out.
	if err = os.Chmod(private, 0o666); err == nil {
		err = os.Rename(private, path)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close(), os.Remove(private))
	}
	return l, nil
}

func newDeadlineServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: declareAnswer, ReadTimeout: declareAnswer, WriteTimeout: declareAnswer,
		IdleTimeout: time.Minute, MaxHeaderBytes: 4 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// privateDir makes a directory that only this user can enter. It refuses one that others can.
func privateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	var is unix.Stat_t
	if err := unix.Lstat(dir, &is); err != nil {
		return fmt.Errorf("look at %s: %w", dir, err)
	}
	if is.Mode&unix.S_IFMT != unix.S_IFDIR || int(is.Uid) != os.Geteuid() || is.Mode&0o077 != 0 {
		return fmt.Errorf("host.deadlines.sockets: other users can enter %s, or own it: choose a directory of its own, of mode 0700", dir)
	}
	return nil
}

func (o *socket) close() { _ = o.server.Close() }

// remove removes the socket's file, not its directory.
func (o *socket) remove() { _ = os.Remove(filepath.Join(o.dir, socketFile)) }

// end closes all sockets. remove: no process continues. The directories stay: a container that has mounted one finds the socket of the
// next process there.
func (s *sockets) end(remove bool) {
	if s == nil {
		return
	}
	for _, one := range s.open {
		one.close()
		if remove {
			one.remove()
		}
	}
}

// handler answers the programs of a VM.
func (d *deadlines) handler(vm law.VM) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/deadlines", func(w http.ResponseWriter, q *http.Request) {
		id, err := d.post(vm, http.MaxBytesReader(w, q.Body, deadline.MaxBody))
		if err != nil {
			decline(w, err)
			return
		}
		answer(w, http.StatusCreated, map[string]uint64{"id": id})
	})
	mux.HandleFunc("GET /v1/deadlines", func(w http.ResponseWriter, _ *http.Request) {
		if err := d.admits(vm); err != nil {
			decline(w, err)
			return
		}
		answer(w, http.StatusOK, d.list(vm))
	})
	mux.HandleFunc("DELETE /v1/deadlines/{id}", func(w http.ResponseWriter, q *http.Request) {
		err := d.admits(vm)
		if err == nil {
			var id uint64
			if id, err = strconv.ParseUint(q.PathValue("id"), 10, 64); err != nil {
				err = d.malformed(vm, errors.New("the ID of a declaration is a whole number"))
			} else {
				err = d.delete(vm, id)
			}
		}
		if err != nil {
			decline(w, err)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
}

// post reads a declaration and takes it.
func (d *deadlines) post(vm law.VM, from io.Reader) (uint64, error) {
	if err := d.admits(vm); err != nil {
		return 0, err
	}
	text, err := io.ReadAll(from)
	if err != nil {
		return 0, d.malformed(vm, err)
	}
	what, err := deadline.Decode(text)
	if err != nil {
		return 0, d.malformed(vm, err)
	}
	return d.declare(vm, what)
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // fails if the client has left
}

// decline answers with the reason of a refusal.
func decline(w http.ResponseWriter, err error) {
	reason, text := reasonOf(err)
	status := http.StatusTooManyRequests
	switch reason {
	case refusedForm:
		status = http.StatusBadRequest
	case refusedSource:
		status = http.StatusForbidden
	case refusedUnknown, refusedLeft:
		status = http.StatusNotFound
	case refusedFull:
		status = http.StatusServiceUnavailable
	}
	answer(w, status, map[string]string{"reason": reason, "error": text})
}

// sendDeadlines sends declarations as they come, until stop. Those that the bus does not take are sent when it does.
func (l *link) sendDeadlines(stop <-chan struct{}) {
	d := l.host.deadlines
	for {
		select {
		case <-stop:
			return
		case <-l.declared:
		}
		for l.Conn().Connected() {
			all := d.message()
			if len(all) == 0 {
				break
			}
			e := l.events(true)
			e.Deadlines = all
			err := l.SendEvents(e)
			l.sent(err)
			if err != nil {
				d.lost(all)
				break
			}
		}
	}
}

// declaring has declarations sent soon.
func (l *link) declaring() {
	select {
	case l.declared <- struct{}{}:
	default:
	}
}
