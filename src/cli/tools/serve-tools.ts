import process from 'node:process'
import { packageVersion } from '../../kit/index.ts'
import { Writable } from 'node:stream'
import type { LoadedEnvironment } from '../../env/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { HttpToolDoor, ServedTools, StdioToolDoor } from '../../serve/index.ts'
import { exitCodes, type ExitCode } from '../process/exit-codes.ts'
import { formatQuantity } from '../format/count.ts'
import { ForeignOutput } from '../process/foreign-output.ts'
import type { CommandIo } from '../process/io.ts'

export interface ServeToolsRequest {
  readonly load: () => Promise<LoadedEnvironment>
  readonly task: number | undefined
  /** The port for HTTP; without it, standard input and output are used. */
  readonly http: number | undefined
}

/** Carries out `millrace tools serve`, until its client goes or a signal comes. */
export async function serveEnvironmentTools(
  { load, task, http }: ServeToolsRequest,
  { io, signal }: { readonly io: CommandIo; readonly signal: AbortSignal },
): Promise<ExitCode> {
  const { stderr } = io
  // Standard output belongs to the protocol. Other output, such as an environment's prints, goes to standard error.
  using _foreign = http === undefined ? new ForeignOutput([io.stdout], (line) => void stderr.line(line)) : undefined
  await using tools = await ServedTools.open(await load(), { task, env: io.env, signal })
  const onFault = (error: unknown): void => {
    void stderr.line(`${stderr.style.warn('warning:')} ${MillraceError.from(error, 'internal').rawMessage}`)
  }
  const count = formatQuantity(tools.box.definitions.length, 'tool')
  const options = { tools, version: packageVersion(), onFault }
  if (http === undefined) {
    await using door = await StdioToolDoor.open({
      ...options,
      input: process.stdin,
      output: protocolStream(io),
      signal,
    })
    void stderr.line(stderr.style.dim(`${tools.name}: ${count} on standard input and output`))
    await Promise.race([door.ended, aborted(signal)])
    return exitCodes.ok
  }
  await using door = await HttpToolDoor.open({ ...options, port: http })
  void io.stdout.line(`${tools.name}: ${count} on ${io.stdout.style.bold(door.url)}`)
  await aborted(signal)
  return exitCodes.ok
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve()
    else signal.addEventListener('abort', () => resolve(), { once: true })
  })
}

/** A stream to standard output that is not diverted. */
function protocolStream({ stdout }: CommandIo): Writable {
  return new Writable({
    write: (chunk: Buffer, _encoding, done) => {
      const room = stdout.write(chunk)
      if (room) void room.then(() => done())
      else done()
    },
  })
}
