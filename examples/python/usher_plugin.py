"""The half of a plugin that every policy needs, in Python: the handshake with
Usher, the calls of the protocol, and the tickets of requests that run or wait.
docs/plugin-protocol.md says what all of it is for.

It needs Debian's python3-grpcio and python3-protobuf, and policy_pb2, which
protoc makes of sdk/proto/usher/policy/v1/policy.proto.
"""

import asyncio
import json
import os
import signal
import sys
import tempfile

import grpc
from usher.policy.v1 import policy_pb2 as pb

COOKIE = ("USHER_POLICY_PLUGIN", "2f1d7c0e-8e0b-4b55-9a57-0b9f6f1f3a60")
MAX_MESSAGE = 64 << 20


class Ticket:
    """One request that runs, or waits for that."""

    def __init__(self, request, attempt, candidates):
        self.request, self.attempt, self.candidates = request, attempt, candidates
        self.admitted = None  # the index of the candidate that it runs on
        self.rejected = None  # the reason why it may not run
        self.asked = True  # False: restored, and not asked for again yet
        self.settled = asyncio.Event()


class Instance:
    """A configured policy: `room(request, running)` says whether a request may
    start next to those that run. All code runs in one thread, so that nothing
    needs a lock, and a request that waits costs no thread."""

    def __init__(self, room):
        self.room = room
        self.running, self.waiting = {}, {}  # tickets by (request id, attempt)

    def line(self):
        """Those who wait, in their order: by priority, then by arrival."""
        return sorted(self.waiting.items(), key=lambda kt: (-kt[1].request.priority, kt[1].request.arrival))

    def begin(self, key, request, attempt, candidates):
        """Returns the ticket of a request, which is made if there is none: a
        call whose answer was lost is made again, and gets the same answer."""
        ticket = self.running.get(key) or self.waiting.get(key)
        if ticket is None:
            ticket = self.waiting[key] = Ticket(request, attempt, candidates)
        elif not ticket.asked:
            ticket.request, ticket.candidates, ticket.asked = request, candidates, True
        self.move()
        return ticket

    def move(self):
        """Admits all in line for whom there is room."""
        for key, ticket in self.line():
            if ticket.asked and self.room(ticket.request, [t.request for t in self.running.values()]):
                self.running[key] = self.waiting.pop(key)
                ticket.admitted = ticket.candidates[0]
                ticket.settled.set()

    def end(self, key):
        """Ends a lease, or a wait. What is not known was ended before."""
        self.running.pop(key, None)
        self.reject(key, "plugin_unavailable")
        self.move()

    def reject(self, key, reason):
        ticket = self.waiting.pop(key, None)
        if ticket is not None:
            ticket.rejected = reason
            ticket.settled.set()

    def position(self, key):
        return [k for k, _ in self.line()].index(key) + 1


def answer(instance, key, ticket):
    if ticket.admitted is not None:
        return pb.Admission(admitted=pb.Admitted(index=ticket.admitted))
    if ticket.rejected is not None:
        return pb.Admission(rejected=pb.Rejected(reason=ticket.rejected))
    return pb.Admission(waiting=pb.Waiting(position=instance.position(key)))


class Service:
    """The calls of usher.policy.v1.PolicyService. `defaults` are the options of
    the policy, and `build(options)` returns its room function."""

    def __init__(self, name, version, defaults, check, build):
        self.name, self.version = name, version
        self.defaults, self.check, self.build = defaults, check, build
        self.instances, self.catalogs = {}, {}

    def decode(self, raw):
        """Returns the options, and what is wrong with them."""
        options, wrong = dict(self.defaults), []
        for name, value in json.loads(raw or b"{}").items():
            if name not in self.defaults:
                wrong.append(pb.Diagnostic(option=name, message="no such option; there are: " + ", ".join(self.defaults)))
            elif value is not None:
                options[name] = value
        if not wrong:
            wrong = [pb.Diagnostic(option=o, message=m) for o, m in self.check(options)]
        return options, wrong

    async def GetInfo(self, request, context):
        options = [pb.OptionInfo(name=n, type=type(v).__name__, default_json=json.dumps(v).encode()) for n, v in sorted(self.defaults.items())]
        return pb.GetInfoResponse(name=self.name, version=self.version, policies=[self.name], capabilities=["catalog_parts"],
                                  details=[pb.PolicyInfo(name=self.name, options=options)])

    async def ValidateConfig(self, request, context):
        return pb.ValidateConfigResponse(diagnostics=self.decode(request.config_json)[1])

    async def Configure(self, request, context):
        if request.instance not in self.instances:
            options, wrong = self.decode(request.config_json)
            if wrong:
                return pb.ConfigureResponse(diagnostics=wrong)
            self.instances[request.instance] = Instance(self.build(options))
        return pb.ConfigureResponse(kinds=[pb.KIND_ADMISSION, pb.KIND_RESTORER])

    async def SyncCatalog(self, request, context):
        if request.catalog:
            parts = [part for part in request.parts if part not in self.catalogs]
            if parts:
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"unknown catalogs {parts}")
            self.catalogs[request.catalog] = [c for part in request.parts for c in self.catalogs[part]] + list(request.candidates)
        for name in request.forget:
            self.catalogs.pop(name, None)
        return pb.SyncCatalogResponse()

    async def known(self, instance, catalog, context):
        """Returns an instance. What is not known is to be sent first."""
        if instance not in self.instances or catalog not in self.catalogs:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"unknown instance {instance!r} or catalog {catalog!r}")
        return self.instances[instance]

    async def begin(self, name, request, context):
        instance = await self.known(name, request.catalog, context)
        if not request.candidates:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no candidates to admit")
        key = (request.request.id, request.attempt)
        ticket = instance.begin(key, request.request, request.attempt, [c.index for c in request.candidates])
        if request.no_wait:
            instance.reject(key, "concurrency")
        return instance, key, ticket

    async def Decide(self, request, context):
        for name in request.select:
            await self.known(name, request.catalog, context)
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "the policy offers no selection")
        if not request.admit or not request.candidates:
            return pb.DecideResponse()
        return pb.DecideResponse(admission=answer(*await self.begin(request.admit, request, context)))

    async def Admit(self, request, context):
        instance, key, ticket = await self.begin(request.instance, request, context)
        if request.seen_position:  # the place is told once; this may be refined
            await ticket.settled.wait()  # the end of the call ends this, and not the ticket
        return pb.AdmitResponse(admission=answer(instance, key, ticket))

    async def Cancel(self, request, context):
        instance = self.instances.get(request.instance)
        for ticket in request.tickets if instance else []:
            instance.end((ticket.id, ticket.attempt))
        return pb.CancelResponse()

    async def Release(self, request, context):
        for release in request.releases:
            instance = self.instances.get(release.instance)
            if instance:
                instance.end((release.ticket.id, release.ticket.attempt))
        return pb.ReleaseResponse()

    async def Restore(self, request, context):
        if request.instance not in self.instances:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "unknown instance")
        instance = self.instances[request.instance]
        for tickets, to in ((request.running, instance.running), (request.waiting, instance.waiting)):
            for t in tickets:
                ticket = to[(t.request.id, t.attempt)] = Ticket(t.request, t.attempt, [c.index for c in t.candidates])
                ticket.asked = False
                if to is instance.running:
                    ticket.admitted = ticket.candidates[0]
                    ticket.settled.set()
        return pb.RestoreResponse()

    async def Observe(self, request, context):
        return pb.ObserveResponse()

    async def Drain(self, request, context):
        for name in [request.instance] if request.instance else list(self.instances):
            instance = self.instances.pop(name, None)
            for key in list(instance.waiting) if instance else []:
                instance.reject(key, "plugin_unavailable")
        return pb.DrainResponse()


def handlers(service, end):
    """The services of a plugin: ours, and the two of go-plugin that matter."""
    ours = {}
    for call in pb.DESCRIPTOR.services_by_name["PolicyService"].methods:
        if hasattr(service, call.name):
            request = getattr(pb, call.input_type.name)
            response = getattr(pb, call.output_type.name)
            ours[call.name] = grpc.unary_unary_rpc_method_handler(
                getattr(service, call.name), request_deserializer=request.FromString, response_serializer=response.SerializeToString)

    async def shutdown(request, context):
        end.set()
        return b""

    async def serving(request, context):
        return b"\x08\x01"  # HealthCheckResponse{status: SERVING}

    return (
        grpc.method_handlers_generic_handler("usher.policy.v1.PolicyService", ours),
        grpc.method_handlers_generic_handler("plugin.GRPCController", {"Shutdown": grpc.unary_unary_rpc_method_handler(shutdown)}),
        grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": grpc.unary_unary_rpc_method_handler(serving)}),
    )


async def run(service):
    # The host ends a plugin when it has drained it. A service manager sends
    # these to all processes at once.
    for s in (signal.SIGTERM, signal.SIGINT):
        signal.signal(s, signal.SIG_IGN)
    end = asyncio.Event()
    if os.environ.get("USHER_LIFELINE"):  # the standard input ends with the host
        asyncio.get_running_loop().add_reader(0, lambda: os.read(0, 4096) or end.set())
    directory = os.environ.get("PLUGIN_UNIX_SOCKET_DIR") or tempfile.mkdtemp()
    address = os.path.join(directory, f"plugin{os.getpid()}")
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", MAX_MESSAGE), ("grpc.max_send_message_length", MAX_MESSAGE)])
    server.add_generic_rpc_handlers(handlers(service, end))
    server.add_insecure_port("unix:" + address)
    await server.start()
    print(f"1|1|unix|{address}|grpc", flush=True)  # nothing else may stand on standard output
    await end.wait()
    await server.stop(grace=0.5)


def serve(name, version, defaults, check, build):
    """Runs a plugin with one admission policy until its host stops it."""
    if os.environ.get(COOKIE[0]) != COOKIE[1]:
        sys.exit(f"{name} is a plugin of Usher: declare it in a Caddyfile, or try: usher plugin test {sys.argv[0]}")
    asyncio.run(run(Service(name, version, defaults, check, build)))
