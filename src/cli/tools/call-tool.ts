import { MillraceError } from '../../errors/index.ts'
import type { ContentPart, Json } from '../../schema/index.ts'
import { EnvironmentSession, ServedTools } from '../../serve/index.ts'
import { describeParameters, jsonSchemaOf, jsonSchemaParameters, validate, type JsonSchema } from '../../tools/index.ts'
import { usageError } from '../command-line/flag-value.ts'
import { exitCodes, type ExitCode } from '../process/exit-codes.ts'
import { formatDuration } from '../format/duration.ts'
import { printableLine } from '../format/printable.ts'
import type { CommandIo } from '../process/io.ts'
import { answerText } from './_answer-text.ts'
import { callArguments, type GivenArguments } from './_call-arguments.ts'
import { findTool, serverIn, type CallableTool } from './_find-tool.ts'
import { openServers, type OpenedServer } from './_open-servers.ts'
import { onlyServer, type ToolSource } from './tool-source.ts'

export interface ToolCallRequest extends GivenArguments {
  /** The tool's name: `tool`, or `server.tool`. */
  readonly tool: string
  /** The task of the environment that its own tools work on. */
  readonly task: number | undefined
  readonly asJson: boolean
}

interface Surroundings {
  readonly io: CommandIo
  readonly signal: AbortSignal
}

interface Answer {
  readonly content: string | readonly ContentPart[]
  readonly isError: boolean
  readonly structured?: Json
}

/** A tool, its schema, and a function to call it. */
interface FoundTool extends CallableTool {
  readonly inputSchema: JsonSchema
  call(given: Record<string, unknown>): Promise<Answer>
}

/** Carries out `millrace tools call`: opens the servers that may have the tool, calls it once, and shows its answer. */
export async function callTool(source: ToolSource, request: ToolCallRequest, around: Surroundings): Promise<ExitCode> {
  const { io, signal } = around
  const server = serverIn(request.tool, Object.keys(source.servers))
  await using servers = await openServers(onlyServer(source, server), { env: io.env, signal })
  const failures = servers.all.flatMap(({ error }) => error ?? [])
  const tools = [...ownTools(source, request.task, around), ...serverTools(servers.all, around)]
  const tool = findTool(request.tool, tools, { failures, program: io.program })
  const given = callArguments(request, tool.inputSchema)
  const startedAt = performance.now()
  const answer = await tool.call(given)
  show({ ...answer, server: tool.server, tool: tool.name, ms: performance.now() - startedAt }, request.asJson, io)
  return answer.isError ? exitCodes.failed : exitCodes.ok
}

function serverTools(opened: readonly OpenedServer[], { io, signal }: Surroundings): FoundTool[] {
  return opened.flatMap(({ server, session, catalogue }) =>
    (catalogue?.tools ?? []).map(({ name, inputSchema }) => ({
      server,
      name,
      inputSchema,
      call: async (given: Record<string, unknown>): Promise<Answer> => {
        if (!session) throw new MillraceError('internal', `${server} is not open`)
        await refuseBadArguments(`${server}.${name}`, inputSchema, given)
        return await session.call({
          tool: name,
          arguments: given,
          signal,
          onProgress: ({ progress, total, message = '' }) => {
            if (!io.stderr.isTTY) return
            const of = total === undefined ? '' : ` of ${total}`
            void io.stderr.line(io.stderr.style.dim(`${progress}${of} ${printableLine(message)}`))
          },
        })
      },
    })),
  )
}

/** Checks the arguments for a server's tool as rollouts do: what its schema does not allow never reaches the server. */
async function refuseBadArguments(tool: string, schema: JsonSchema, given: Record<string, unknown>): Promise<void> {
  const { problem } = await validate(jsonSchemaParameters(schema), given)
  if (problem === undefined) return
  throw usageError(`bad arguments for ${tool}: ${problem}. Expected ${describeParameters(schema)}`)
}

/** The environment's own tools. The environment is set up for the call, and torn down after it. */
function ownTools({ environment }: ToolSource, task: number | undefined, { io, signal }: Surroundings): FoundTool[] {
  if (!environment) return []
  return Object.entries(environment.environment.tools ?? {}).map(([name, { parameters }]) => ({
    server: environment.name,
    name,
    inputSchema: jsonSchemaOf(parameters),
    call: async (given) => {
      await using served = await ServedTools.open(environment, { task, env: io.env, signal })
      await using session = await EnvironmentSession.open(served, { id: 'call', signal })
      const { message, record } = await session.call({ id: 'call', name, arguments: given, signal })
      return { content: message.content, isError: record.status !== 'ok' }
    },
  }))
}

function show(
  { content, isError, structured, server, tool, ms }: Answer & { server: string; tool: string; ms: number },
  asJson: boolean,
  { stdout, stderr }: CommandIo,
): void {
  if (asJson) {
    void stdout.line(JSON.stringify({ server, tool, ms: Math.round(ms), isError, content, structured }))
    return
  }
  void stdout.line(answerText(content))
  // Most servers repeat the structured answer in the content, so it is shown only if the content is empty.
  if (structured !== undefined && content.length === 0) void stdout.line(JSON.stringify(structured))
  const how = isError ? stderr.style.bad('the tool failed') : 'answered'
  void stderr.line(stderr.style.dim(`${server}.${tool}: ${how} in ${formatDuration(ms)}`))
}
