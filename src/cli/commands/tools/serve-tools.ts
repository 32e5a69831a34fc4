import process from 'node:process'
import { packageVersion } from '../../../kit/index.ts'
import { once } from 'node:events'
import { Writable } from 'node:stream'
import type { LoadedEnvironment } from '../../../env/index.ts'
import { MillraceError } from '../../../errors/index.ts'
import { HttpToolServer, ServedTools, StdioToolServer } from '../../../serve/index.ts'
import { exitCodes, type ExitCode } from '../../terminal/exit-codes.ts'
import { formatQuantity } from '../../terminal/format.ts'
import { UserCodeOutput } from '../../terminal/output.ts'
import type { CommandIo } from '../../terminal/io.ts'
import type { ToolCommandContext } from './tool-source.ts'

interface ServeToolsRequest {
  readonly load: () => Promise<LoadedEnvironment>
  readonly task: number | undefined
  readonly http: number | undefined
}

export async function serveEnvironmentTools(
  { load, task, http }: ServeToolsRequest,
  { io, signal }: ToolCommandContext,
): Promise<ExitCode> {
  const { stderr } = io
  // Standard output belongs to the protocol. Other output, such as an environment's prints, goes to standard error.
  using _foreign = http === undefined ? new UserCodeOutput([io.stdout], (line) => void stderr.line(line)) : undefined
  await using tools = await ServedTools.open(await load(), { task, env: io.env, signal })
  const onFault = (error: unknown): void => {
    void stderr.line(`${stderr.style.warn('warning:')} ${MillraceError.from(error, 'internal').rawMessage}`)
  }
  const count = formatQuantity(tools.box.definitions.length, 'tool')
  const options = { tools, version: packageVersion(), onFault }
  if (http === undefined) {
    const streams = { input: process.stdin, output: protocolStream(io) }
    await using httpServer = await StdioToolServer.open({ ...options, ...streams, signal })
    void stderr.line(stderr.style.dim(`${tools.name}: ${count} on standard input and output`))
    await Promise.race([httpServer.ended, aborted(signal)])
    return exitCodes.ok
  }
  await using httpServer = await HttpToolServer.open({ ...options, port: http })
  void io.stdout.line(`${tools.name}: ${count} on ${io.stdout.style.bold(httpServer.url)}`)
  await aborted(signal)
  return exitCodes.ok
}

async function aborted(signal: AbortSignal): Promise<void> {
  if (!signal.aborted) await once(signal, 'abort')
}

function protocolStream({ stdout }: CommandIo): Writable {
  return new Writable({
    write: (chunk: Buffer, _encoding, done) => {
      const room = stdout.write(chunk)
      if (room) void room.then(() => done())
      else done()
    },
  })
}
