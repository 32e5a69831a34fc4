import { z } from 'zod'
import { openModelEndpoint, type ModelEndpoint } from '../endpoint/index.ts'
import { checkOptions, mustBe } from '../env/index.ts'
import type { Agent, AgentContext } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import { connectionPool, proxyFor } from '../http/index.ts'
import { isJsonObject, jsonOrText } from '../kit/index.ts'
import { Program, TailBuffer } from '../process/index.ts'
import { type Message, textOf } from '../schema/index.ts'
import { requireNames } from './watching.ts'

export interface ExternalOptions {
  /** The program with its arguments, or a line for /bin/sh. */
  readonly command?: string | readonly string[]
  /** The address of a program that is running already, in place of a command. */
  readonly url?: string
  /** Variables of the command beside those that it gets anyway; these win. */
  readonly env?: Readonly<Record<string, string>>
  /** Where the command works. If not given, each rollout has a new folder, which is removed at its end. */
  readonly cwd?: string
  /** The answer: the last reply (`reply`, the default), also after a summary of the history; or what the program says itself (`output`). */
  readonly answer?: 'reply' | 'output'
  /** Whether the program gets the task, too: the whole row, with the solution if that is in it. */
  readonly task?: boolean
  /** Models of the run by the names that the program has for them. Any other name stands for the rollout's model. */
  readonly models?: Readonly<Record<string, string>>
}

const texts = z.record(z.string(), z.string())

/** All options can be written down. */
export const externalShape = {
  command: z
    .union([z.string().min(1), z.array(z.string()).min(1)], mustBe('a line for the shell, or a list of words'))
    .exactOptional(),
  url: z.url({ protocol: /^https?$/, ...mustBe('an address, such as http://127.0.0.1:5000/run') }).exactOptional(),
  env: z
    .record(z.string(), z.string(mustBe(`a text (on the command line with quotes, such as '"1"')`)))
    .exactOptional(),
  cwd: z.string().exactOptional(),
  answer: z.enum(['reply', 'output'], mustBe('reply or output')).exactOptional(),
  task: z.boolean().exactOptional(),
  models: texts.exactOptional(),
}

/**
 * A program in any language is the agent. It asks the models of the rollout at an address and with a key that it is given: what it
 * says is recorded, and counts toward the budget. When a command exits, or an address replies, the agent has ended.
 */
export function external(options: ExternalOptions): Agent {
  checkOptions('external()', externalShape, options)
  const { command, url, models = {}, answer = 'reply' } = options
  const [run, isOne] = url === undefined ? [runCommand, command !== undefined] : [askService, command === undefined]
  if (!isOne) {
    const message =
      command === undefined ? 'needs either a `command` or a `url`' : 'takes a `command` or a `url`, not both'
    throw new MillraceError('env_invalid', `external() ${message}`)
  }
  if (url !== undefined && (options.env ?? options.cwd) !== undefined) {
    const message =
      'external(): `env` and `cwd` are for a `command`: set them where the service at the `url` is started'
    throw new MillraceError('env_invalid', message)
  }
  const agent: Agent = async (context) => {
    for (const model of Object.values(models)) requireNames(context, 'external()', { model })
    const endpoint = await context.use(openModelEndpoint(context, { models }))
    const ended = Promise.race([run({ context, endpoint, options }), endpoint.fatal])
    await ended.catch(() => {})
    await endpoint[Symbol.asyncDispose]()
    // A program that cannot go on without its model may still exit with 0.
    if (endpoint.lastError) throw endpoint.lastError
    const output = await ended
    const { reply } = endpoint
    if (answer === 'reply' && reply) {
      // The program may have ended in another conversation, with a history that it wrote anew.
      const isInPlace = context.messages.findLast(({ role }) => role === 'assistant') === reply
      if (!isInPlace) context.append({ role: 'assistant', content: textOf(reply) })
      return
    }
    // The conversation may be another agent's, which had this one at work, or none that the program opened.
    if (context.messages.length === 0) context.append(...context.prompt)
    context.append({ role: 'assistant', content: output.trim() })
  }
  return Object.assign(agent, { opensConversation: true } as const)
}

interface Work {
  readonly context: AgentContext
  readonly endpoint: ModelEndpoint
  readonly options: ExternalOptions
}

/** Of what a program says, so much is kept: the end. */
const maxOutputBytes = 256 * 1024

/** Resolves with the end of what the command printed, once nothing is left of it. */
async function runCommand({ context, endpoint, options }: Work): Promise<string> {
  const { command: given = [], cwd } = options
  const [command = '', ...args] = typeof given === 'string' ? ['/bin/sh', '-c', given] : given
  // Of a line, not even the first word: it may be `TOKEN=…`, and the name is recorded.
  const name = typeof given === 'string' ? 'sh' : command
  const task = options.task && { MILLRACE_TASK: JSON.stringify(context.task) ?? '' }
  const env = { ...shortOnes({ ...variables(context, endpoint), ...task }), ...options.env }
  const config = { command, args, env, ...(cwd !== undefined && { cwd }) }
  const program = await context.use(Program.start({ kind: 'program', name, config, closeGraceMs: 0 }))
  const output = new TailBuffer(maxOutputBytes)
  program.stdout.on('data', (chunk: Buffer) => output.push(chunk))
  program.stdin.end(promptText(context))
  const { code } = await program.ended
  await program.close()
  if (code !== 0) throw program.failure
  return output.toString()
}

/** Resolves with the answer of a service that is told where the models are. */
async function askService({ context, endpoint, options: { url: address = '', task: isGiven } }: Work): Promise<string> {
  const url = new URL(address)
  const { task, model, signal } = context
  const pool = connectionPool({
    origin: url.origin,
    proxy: proxyFor(url, process.env),
    connections: 1,
    connectTimeoutMs: 10_000,
    authority: undefined,
  })
  await context.use(Promise.resolve({ [Symbol.asyncDispose]: () => pool.destroy() }))
  const asked = { ...(isGiven && { task }), prompt: promptText(context), url: endpoint.url, key: endpoint.key, model }
  const request = { method: 'POST', path: url.pathname + url.search, body: JSON.stringify(asked), signal } as const
  const service = url.origin + url.pathname
  const reply = await pool
    .request({ ...request, headers: { 'content-type': 'application/json' } })
    .catch((cause: unknown) => {
      throw new MillraceError('agent_failed', `${service} does not answer: does it run? (${String(cause)})`, { cause })
    })
  const said = new TailBuffer(maxOutputBytes)
  for await (const chunk of reply.body as AsyncIterable<Buffer>) said.push(chunk)
  const { statusCode: status } = reply
  if (status >= 200 && status < 300) return answerIn(said.toString())
  const message = `${service} replied with status ${status}: ${said.toString().slice(0, 500)}`
  throw new MillraceError('agent_failed', message, { data: { status } })
}

function answerIn(text: string): string {
  const value = jsonOrText(text)
  if (typeof value === 'string') return value
  return isJsonObject(value) && typeof value['answer'] === 'string' ? value['answer'] : text
}

/** Linux takes 128 KB for a variable. What is longer is left out: the prompt is the input, too. */
const maxVariableBytes = 100_000

function shortOnes(given: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(given).filter(([, value]) => Buffer.byteLength(value) <= maxVariableBytes))
}

function variables(context: AgentContext, { root, url, key }: ModelEndpoint): Record<string, string> {
  const { model } = context
  return {
    OPENAI_BASE_URL: url,
    OPENAI_API_KEY: key,
    ANTHROPIC_BASE_URL: root,
    ANTHROPIC_AUTH_TOKEN: key,
    ANTHROPIC_MODEL: model,
    MILLRACE_URL: url,
    MILLRACE_KEY: key,
    MILLRACE_MODEL: model,
    MILLRACE_PROMPT: promptText(context),
    // Ours are never reached through a proxy that is there for everything else.
    NO_PROXY: withLoopback(process.env['NO_PROXY']),
    no_proxy: withLoopback(process.env['no_proxy'] ?? process.env['NO_PROXY']),
  }
}

function withLoopback(hosts: string | undefined): string {
  return hosts ? `${hosts},127.0.0.1` : '127.0.0.1'
}

function promptText(context: AgentContext): string {
  return openMessages(context)
    .map(textOf)
    .filter((text) => text !== '')
    .join('\n\n')
}

/** What is to be answered: the prompt; or what was said since the last reply, if another agent has this one at work. */
function openMessages({ messages, prompt }: AgentContext): readonly Message[] {
  return messages.length === 0 ? prompt : messages.slice(messages.findLastIndex(({ role }) => role === 'assistant') + 1)
}
