import { MillraceError } from '../../../errors/index.ts'
import { jsonOrText, lostNumber, nearestNames, pathText } from '../../../kit/index.ts'
import { type ContentPart, isJsonObject, type Json, validate } from '../../../schema/index.ts'
import { ServedTools } from '../../../serve/index.ts'
import { describeParameters, type JsonSchema, jsonSchemaOf, jsonSchemaParameters } from '../../../tools/index.ts'
import { usageError } from '../../command-line/flag-value.ts'
import { type ExitCode, exitCodes } from '../../terminal/exit-codes.ts'
import { formatBytes, formatDuration } from '../../terminal/format.ts'
import type { CommandIo } from '../../terminal/io.ts'
import { printable, printableLine } from '../../terminal/text.ts'
import { onlyServer, type OpenedServer, openServers, type ToolCommandContext, type ToolSource } from './tool-source.ts'

export interface ToolCallRequest extends ArgumentFlags {
  readonly tool: string
  readonly task: number | undefined
  readonly asJson: boolean
}

interface Answer {
  readonly content: string | readonly ContentPart[]
  readonly isError: boolean
  readonly structured?: Json
}

interface FoundTool extends CallableTool {
  readonly inputSchema: JsonSchema
  call(given: Record<string, unknown>): Promise<Answer>
}

export async function callTool(
  source: ToolSource,
  request: ToolCallRequest,
  around: ToolCommandContext,
): Promise<ExitCode> {
  const { io } = around
  const server = serverIn(request.tool, Object.keys(source.servers))
  await using servers = await openServers(onlyServer(source, server), around)
  const failures = servers.all.flatMap(({ error }) => error ?? [])
  const tools = [...ownTools(source, request.task, around), ...serverTools(servers.all, around)]
  const tool = findTool(request.tool, tools, { failures, program: io.program })
  const given = callArguments(request, tool.inputSchema)
  const startedAt = performance.now()
  const answer = await tool.call(given)
  show({ ...answer, server: tool.server, tool: tool.name, ms: performance.now() - startedAt }, request.asJson, io)
  return answer.isError ? exitCodes.failed : exitCodes.ok
}

function serverTools(opened: readonly OpenedServer[], { io, signal }: ToolCommandContext): FoundTool[] {
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
function ownTools(
  { environment }: ToolSource,
  task: number | undefined,
  { io, signal }: ToolCommandContext,
): FoundTool[] {
  if (!environment) return []
  return Object.entries(environment.environment.tools ?? {}).map(([name, { parameters }]) => ({
    server: environment.name,
    name,
    inputSchema: jsonSchemaOf(parameters),
    call: async (given) => {
      await using served = await ServedTools.open(environment, { task, env: io.env, signal })
      await using session = await served.session({ id: 'call', signal })
      const { message, record } = await session.call({ id: 'call', name, arguments: JSON.stringify(given), signal })
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

export interface CallableTool {
  readonly server: string
  readonly name: string
}

export function serverIn(wanted: string, servers: Iterable<string>): string | undefined {
  return Iterator.from(servers).find((server) => wanted.startsWith(`${server}.`))
}

/** Finds `tool` or `server.tool`. If no name is near and a server did not open, the tool is assumed to be that server's. */
export function findTool<Tool extends CallableTool>(
  wanted: string,
  tools: readonly Tool[],
  { failures: [failure], program }: { readonly failures: readonly MillraceError[]; readonly program: string },
): Tool {
  const exact = tools.find((tool) => fullName(tool) === wanted)
  if (exact) return exact
  const [found, ...others] = tools.filter(({ name }) => name === wanted)
  if (found && others.length === 0) return found
  if (found) {
    const choices = [found, ...others].map(fullName).join(' or ')
    throw usageError(`several servers have a tool "${wanted}"; say which: ${choices}`)
  }
  const near = new Set([
    ...nearestNames(wanted, new Set(tools.map(({ name }) => name))),
    ...nearestNames(wanted, tools.map(fullName)),
  ])
  if (near.size === 0 && failure) throw failure
  const hint = near.size > 0 ? `did you mean ${[...near].join(' or ')}?` : `${program} tools list shows all tools`
  throw usageError(`there is no tool "${wanted}"; ${hint}`)
}

function fullName({ server, name }: CallableTool): string {
  return `${server}.${name}`
}

export interface ArgumentFlags {
  readonly json: string | undefined
  readonly pairs: readonly string[]
}

/** The arguments of a call. The tool's own schema decides whether a value is text or JSON. */
export function callArguments({ json, pairs }: ArgumentFlags, schema: JsonSchema): Record<string, unknown> {
  if (json === undefined) return Object.fromEntries(pairs.map((pair) => readPair(pair, schema)))
  if (pairs.length > 0) throw usageError('give the arguments as one JSON object or with --arg, not both')
  const value = readJson(json)
  refuseLoss(json, value)
  if (isJsonObject(value)) return { ...value }
  throw usageError(`the arguments must be a JSON object, as in '{"name": "value"}'`)
}

function readJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    const { rawMessage } = MillraceError.from(error, 'internal')
    throw usageError(`the arguments are not JSON: ${rawMessage}; quote them for the shell with '…'`)
  }
}

function readPair(pair: string, schema: JsonSchema): [name: string, value: unknown] {
  const equals = pair.indexOf('=')
  if (equals < 1) throw usageError(`--arg ${pair} lacks a name or a value: --arg <name>=<value>`)
  const name = pair.slice(0, equals)
  const text = pair.slice(equals + 1)
  if (wantsText(schema, name)) return [name, text]
  const value = jsonOrText(text)
  refuseLoss(text, value, [name])
  return [name, value]
}

/** Refuses a number that would reach the tool as another one, as a rollout does. */
function refuseLoss(text: string, value: unknown, before: readonly string[] = []): void {
  const lost = lostNumber(text, value)
  if (!lost) return
  const path = pathText([...before, ...lost.path])
  throw usageError(
    `${path}: the number ${lost.source} cannot be passed on exactly; send it as a string if the tool takes one`,
  )
}

/** Whether the schema wants text here: then `5` stays text, as in a postcode. */
function wantsText(schema: JsonSchema, name: string): boolean {
  const { properties } = schema
  const property = isJsonObject(properties) && Object.hasOwn(properties, name) && properties[name]
  return isJsonObject(property) && property['type'] === 'string'
}

const dataUrl = /^data:([^;,]+);base64,/

/** A tool's answer for a terminal: text unchanged, anything else described. */
export function answerText(content: string | readonly ContentPart[]): string {
  if (typeof content === 'string') return printable(content)
  return content.map(partText).join('\n')
}

function partText(part: ContentPart): string {
  if (part.type === 'text') return printable(part.text)
  if (part.type === 'other') return `[${printable(JSON.stringify(part.value))}]`
  const { url } = part.image_url
  const [head, type] = dataUrl.exec(url) ?? []
  if (head === undefined || type === undefined) return `[image at ${printable(url)}]`
  return `[image ${printable(type)}, ${formatBytes(Math.floor(((url.length - head.length) * 3) / 4))}]`
}
