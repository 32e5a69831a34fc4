import { createServer, request as forward, type IncomingMessage, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { isJsonList, isJsonObject, type Json, type JsonObject } from '../../../src/schema/index.ts'

/** One reply as it left the engine, in the engine's own words. */
export interface Entry {
  /** The session or rollout that the request named. */
  readonly session: string
  readonly path: string
  readonly promptIds: readonly number[]
  readonly ids: readonly number[]
  readonly logprobs: readonly number[]
  /** The weight version of each sampled token; empty if the engine does not say. */
  readonly versions: readonly string[]
}

const samplingPaths = new Set(['/v1/completions', '/inference/v1/generate', '/v1/chat/completions'])

/**
 * A server in front of an engine that passes everything on, byte for byte, and notes the tokens of each reply. It reads requests
 * and replies by itself, so that it can bear witness against what Millrace made of them.
 */
export class EngineLedger implements AsyncDisposable {
  readonly entries: Entry[] = []
  /** What could not be noted: nothing may be missing from a ledger. */
  readonly problems: string[] = []
  readonly #server: Server

  private constructor(engine: string, closed: readonly string[]) {
    this.#server = createServer((request, response) => {
      const question: Buffer[] = []
      const { url: path = '/', method = 'GET', headers } = request
      if (closed.includes(path)) {
        request.resume()
        response.writeHead(403, { 'content-type': 'application/json' }).end('{"error":{"message":"not enabled"}}')
        return
      }
      const onward = forward(new URL(path, engine), { method, headers }, (answer) => {
        const reply: Buffer[] = []
        response.writeHead(answer.statusCode ?? 502, answer.headers)
        answer.on('data', (piece: Buffer) => reply.push(piece)).pipe(response)
        answer.on('error', () => response.destroy())
        answer.on('end', () => {
          if (method === 'POST' && samplingPaths.has(path) && answer.statusCode === 200) {
            this.#note(request, Buffer.concat(question).toString(), Buffer.concat(reply).toString())
          }
        })
      })
      onward.on('error', () => response.destroy())
      response.on('close', () => onward.destroy())
      request.on('data', (piece: Buffer) => question.push(piece)).pipe(onward)
    })
  }

  /** `closed`: paths that are answered as by an engine that was not started with them. */
  static async start(engine: string, closed: readonly string[] = []): Promise<EngineLedger> {
    const ledger = new EngineLedger(engine, closed)
    const { promise, resolve } = Promise.withResolvers<void>()
    ledger.#server.listen(0, '127.0.0.1', resolve)
    await promise
    return ledger
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  entriesOf(session: string): Entry[] {
    return this.entries.filter((entry) => entry.session === session)
  }

  #note({ url: path = '', headers }: IncomingMessage, question: string, reply: string): void {
    const { 'x-session-id': session } = headers
    // Probes name no session.
    if (typeof session !== 'string') return
    try {
      const asked = JSON.parse(question) as JsonObject
      const documents = reply.startsWith('data:') ? eventsOf(reply) : [JSON.parse(reply) as JsonObject]
      this.entries.push({ session, path, ...tokensOf(asked, documents) })
    } catch (error) {
      this.problems.push(`${path}: ${String(error)}`)
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections()
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#server.close(() => resolve())
    await promise
  }
}

function eventsOf(stream: string): JsonObject[] {
  const lines = stream.split('\n').filter((line) => line.startsWith('data: {'))
  return lines.map((line) => JSON.parse(line.slice('data: '.length)) as JsonObject)
}

/** The ids that the engine was given, or says that it made of a conversation, and what it sampled after them. */
function tokensOf(asked: JsonObject, documents: readonly JsonObject[]): Omit<Entry, 'session' | 'path'> {
  const choices = documents.flatMap(({ choices: list }) => objectsIn(list))
  const said = [...documents, ...choices].find(({ prompt_token_ids: ids }) => isJsonList(ids))
  return {
    promptIds: numbers(asked['token_ids'] ?? asked['prompt'] ?? said?.['prompt_token_ids']),
    ids: choices.flatMap((choice) => (choice['token_ids'] ? numbers(choice['token_ids']) : idsByName(choice))),
    logprobs: choices.flatMap(({ logprobs }) => logprobsIn(logprobs)),
    versions: choices.flatMap(({ weight_versions: spans }) => objectsIn(spans).flatMap((span) => versionsIn(span))),
  }
}

function versionsIn({ version, start, end }: JsonObject): string[] {
  if (typeof version !== 'string') throw new Error(`no weight version: ${JSON.stringify(version)}`)
  return Array.from({ length: Number(end) - Number(start) }, () => version)
}

function idsByName({ logprobs }: JsonObject): number[] {
  const names = isJsonObject(logprobs) ? logprobs['tokens'] : []
  return numbers(
    isJsonList(names)
      ? names.map((name) => (typeof name === 'string' ? Number(name.replace(/^token_id:/, '')) : null))
      : [],
  )
}

function logprobsIn(logprobs: Json | undefined): number[] {
  if (!isJsonObject(logprobs)) return []
  const { token_logprobs: values, content } = logprobs
  return numbers(values ?? objectsIn(content).map(({ logprob }) => logprob ?? null))
}

function objectsIn(list: Json | undefined): JsonObject[] {
  return isJsonList(list) ? list.filter((each) => isJsonObject(each)) : []
}

function numbers(list: Json | undefined): number[] {
  if (!isJsonList(list) || !list.every((each) => typeof each === 'number' && !Number.isNaN(each))) {
    throw new Error(`no list of numbers: ${JSON.stringify(list)?.slice(0, 100)}`)
  }
  return list as number[]
}
