package soak

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// clock is the wall clock of a process: CLOCK_REALTIME, as Go reads it. The kernel has namespaces for other clocks only, and no test may
// set the machine's. So the process's copy of the vDSO is changed before its first instruction: clock_gettime makes the system call and
// adds a number of seconds. All other clocks are the kernel's. Times that the kernel stamps, of files and packets, do not step.
type clock struct {
	memory string
	offset int64 // address of the seconds
}

// canStep reports whether clocks of processes can step: the code below is of this architecture.
const canStep = runtime.GOARCH == "amd64"

// stepped is clock_gettime(clock in edi, time in rsi).
var stepped = []byte{
	0xb8, 228, 0, 0, 0, // mov eax, SYS_clock_gettime
	0x0f, 0x05, // syscall
	0x85, 0xff, // test edi, edi: CLOCK_REALTIME is 0
	0x75, 0x07, // jne to the end
	0x48, 0x81, 0x06, 0, 0, 0, 0, // add qword [rsi], seconds
	0xc3, // ret
}

const secondsAt = 14 // in stepped

// startWithClock starts a process with a clock that can step. Its caller is locked to its thread, which traces the process until it has
// changed it.
func startWithClock(cmd *exec.Cmd) (*clock, error) {
	if !canStep {
		return nil, cmd.Start()
	}
	cmd.SysProcAttr.Ptrace = true
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	pid := cmd.Process.Pid
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, 0, nil); err != nil || !status.Stopped() {
		return nil, fmt.Errorf("process %d did not stop at its start: %v, %w", pid, status, err)
	}
	c := &clock{memory: fmt.Sprintf("/proc/%d/mem", pid)}
	at, err := clockGettime(pid)
	if err == nil {
		c.offset = at + secondsAt
		err = c.write(at, stepped)
	}
	return c, errors.Join(err, unix.PtraceDetach(pid))
}

// step sets how far the process's wall clock is from the machine's, in whole seconds.
func (c *clock) step(by time.Duration) error {
	return c.write(c.offset, binary.LittleEndian.AppendUint32(nil, uint32(int32(by/time.Second))))
}

func (c *clock) write(at int64, b []byte) error {
	f, err := os.OpenFile(c.memory, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, at)
	return errors.Join(err, f.Close())
}

// clockGettime returns the address of the function in a process's vDSO.
func clockGettime(pid int) (int64, error) {
	const sysinfoEHDR = 33 // AT_SYSINFO_EHDR of <elf.h>: where the vDSO is
	auxv, err := os.ReadFile(fmt.Sprintf("/proc/%d/auxv", pid))
	if err != nil {
		return 0, err
	}
	base := int64(0)
	for entry := range slices.Chunk(auxv, 16) {
		if binary.LittleEndian.Uint64(entry) == sysinfoEHDR {
			base = int64(binary.LittleEndian.Uint64(entry[8:]))
		}
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return 0, err
	}
	defer mem.Close()
	image, err := io.ReadAll(io.NewSectionReader(mem, base, 2*4096))
	if len(image) == 0 {
		return 0, fmt.Errorf("the vDSO of process %d at %#x: %w", pid, base, err)
	}
	vdso, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, err
	}
	symbols, err := vdso.DynamicSymbols()
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" {
			return base + int64(s.Value), nil
		}
	}
	return 0, fmt.Errorf("the vDSO of process %d has no clock_gettime: %w", pid, err)
}

// printClocks answers each line with the wall clock and how long the process runs, in seconds.
func printClocks() error {
	begun := time.Now()
	var line string
	for {
		if _, err := fmt.Scanln(&line); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		fmt.Println(time.Now().Unix(), int(time.Since(begun).Seconds()))
	}
}

// The fault is what it says: the wall clock of one process steps, its monotonic clock and ours do not.
func TestClock(t *testing.T) {
	if !canStep {
		t.Skip("clocks of processes step on amd64 only")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"=clock")
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c, err := startWithClock(cmd)
	if err != nil {
		t.Fatal(err)
	}
	for _, by := range []time.Duration{0, time.Hour, -time.Hour, 0} {
		if err := c.step(by); err != nil {
			t.Fatal(err)
		}
		before := time.Now()
		if _, err := io.WriteString(in, "now\n"); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 100)
		n, err := out.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		said := strings.Fields(string(b[:n]))
		wall, err := strconv.ParseInt(said[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if from, to := before.Add(by).Unix(), time.Now().Add(by).Unix(); wall < from || wall > to {
			t.Errorf("step of %v: the clock is %d, want %d to %d", by, wall, from, to)
		}
		if ran, err := strconv.Atoi(said[1]); err != nil || ran < 0 || ran > 600 {
			t.Errorf("step of %v: the process has run for %s s", by, said[1])
		}
	}
	if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
		t.Fatal(err)
	}
}
