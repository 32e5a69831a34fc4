import type { ServerResponse } from 'node:http'
import { chatChunk, chatReply, ScriptedServer, sendJson, type ServedRequest } from './inference/scripted-server.ts'

/** The kinds of failure in which the server repeats the headers and the url of a request. */
export const echoKinds = [
  'status-400',
  'status-422',
  'status-500',
  'page',
  'body',
  'choice',
  'event',
  'packed',
  'foreign',
]

/**
 * A server of all APIs that repeats what it was sent in every failure. A request says which one it wants: `kind=status-400.`
 * somewhere in its body. It refuses the key of the request of a preflight, and fails at everything below `/broken`.
 */
export function startEchoServer(): Promise<ScriptedServer> {
  return ScriptedServer.start((response, request) => {
    if (request.path.startsWith('/mcp') || request.path.includes('broken')) sendJson(response, failure(request), 500)
    else if (request.path.includes('refusing')) sendJson(response, failure(request), 401)
    else if (request.method === 'GET') sendJson(response, { object: 'list', data: [{ id: 'm', object: 'model' }] })
    else answer(response, request)
  })
}

function answer(response: ServerResponse, request: ServedRequest): void {
  const isPreflight = request.body.includes('the word ready')
  const [, kind = isPreflight ? 'status-401' : 'status-400'] = /kind=([a-z0-9-]+)\./.exec(request.body) ?? []
  const [, status] = /^status-(\d+)$/.exec(kind) ?? []
  if (kind === 'ok') sendJson(response, chatReply('fine'))
  else if (status !== undefined) sendJson(response, failure(request), Number(status))
  else if (kind === 'page') response.writeHead(503, { 'content-type': 'text/html' }).end(`<p>${echoOf(request)}</p>`)
  else if (kind === 'body') sendJson(response, failure(request))
  else if (kind === 'choice') sendChoice(response, request)
  else if (kind === 'event') sendEvents(response, JSON.stringify(failure(request)))
  else if (kind === 'foreign') sendEvents(response, echoOf(request))
  else response.writeHead(200, { 'content-encoding': String(request.headers['x-route']) }).end('{}')
}

/** An error that all APIs know, in a body or an event. */
function failure(request: ServedRequest): object {
  const said = String(request.headers.authorization ?? request.headers['x-api-key'])
  return { type: 'error', error: { message: echoOf(request), type: said, code: said, param: said } }
}

function sendChoice(response: ServerResponse, request: ServedRequest): void {
  const message = { role: 'assistant', content: 'fi' }
  sendJson(response, {
    ...chatReply(''),
    choices: [{ index: 0, message, finish_reason: 'error', ...failure(request) }],
  })
}

function sendEvents(response: ServerResponse, last: string): void {
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  response.end(`${chatChunk({ role: 'assistant', content: 'fi' })}data: ${last}\n\n`)
}

/** The headers and the url as JSON, in base64, and as a part of a url. */
function echoOf({ path, headers }: ServedRequest): string {
  const text = JSON.stringify({ path, ...headers })
  return `${text} ${Buffer.from(text).toString('base64')} ${encodeURIComponent(text)}`
}
