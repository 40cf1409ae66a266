package bus

import "github.com/nats-io/nats.go"

// Work for many machines: a stream with tasks, each for one worker, and an object store with their results. The rooms that use it
// define the messages. Tasks have the digest of a build in their subject, so a worker of another build never receives them.
const (
	// WorkStream is the stream with the tasks.
	WorkStream = "WEIR_WORK"
	// WorkStore is the object store with the results.
	WorkStore = "weir-work"
	// WorkSubjects are those of all tasks.
	WorkSubjects = workPrefix + ">"

	workPrefix   = "weir.v1.work." // + WORLD.CODE.JOB: a task
	workerPrefix = "weir.v1.wrk."  // + NAME: the state of a worker
	jobPrefix    = "weir.v1.job."  // + NAME: an operator's job goes on, or ended

	workObjects = "OBJ_" + WorkStore // the object store's stream
)

// WorkSubject is the subject of a job's tasks for a build. "*" for any.
func WorkSubject(world, code, job string) string {
	return workPrefix + world + "." + code + "." + job
}

// WorkConsumer is the consumer of a build's tasks, which its workers share.
func WorkConsumer(world, code string) string { return world + "-" + code }

// WorkerSubject is the subject on which a worker publishes its state. "*" for any.
func WorkerSubject(name string) string { return workerPrefix + name }

// JobSubject is the subject on which an operator announces its jobs. "*" for any.
func JobSubject(name string) string { return jobPrefix + name }

// WorkerOf returns the worker's name in a subject of WorkerSubject; "" for another subject.
func WorkerOf(subject string) string { return nameIn(subject, workerPrefix) }

// workerSubjects lets a worker take tasks, report itself, and add results. It reads no results, and makes and removes no stream.
func workerSubjects(name string) Subjects {
	return Subjects{
		Publish: []string{
			WorkerSubject(name), "$JS.API.CONSUMER.INFO." + WorkStream + ".*", "$JS.API.CONSUMER.MSG.NEXT." + WorkStream + ".*",
			"$JS.ACK." + WorkStream + ".>", "$JS.API.STREAM.INFO." + workObjects, "$JS.API.DIRECT.GET." + workObjects + ".$O." + WorkStore + ".M.*",
			"$O." + WorkStore + ".C.*", "$O." + WorkStore + ".M.*",
		},
		Subscribe: []string{JobSubject("*")},
	}
}

// operatorSubjects lets an operator make the stream and the store, add and remove tasks, and read and remove results.
func operatorSubjects(name string) Subjects {
	s := Subjects{
		Publish:   []string{JobSubject(name), WorkSubjects, "$O." + WorkStore + ".M.*", "$JS.FC." + workObjects + ".>"},
		Subscribe: []string{WorkerSubject("*"), JobSubject("*")},
	}
	for _, stream := range []string{WorkStream, workObjects} {
		for _, call := range []string{"STREAM.INFO.", "STREAM.CREATE.", "STREAM.UPDATE.", "STREAM.PURGE."} {
			s.Publish = append(s.Publish, "$JS.API."+call+stream)
		}
		s.Publish = append(s.Publish, "$JS.API.CONSUMER.CREATE."+stream+".>")
	}
	s.Publish = append(s.Publish, "$JS.API.CONSUMER.DELETE."+workObjects+".>", "$JS.API.DIRECT.GET."+workObjects, "$JS.API.DIRECT.GET."+workObjects+".>")
	return s
}

// Client returns the connection to NATS, for rooms whose messages this one does not know. The server checks its subjects.
func (c *Conn) Client() *nats.Conn { return c.nc }
