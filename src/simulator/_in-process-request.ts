import { chatServer, type DialectRequest } from '../dialects/index.ts'
import type { BackendRequest } from '../inference/index.ts'
import { DialectApiRequest } from './_dialect-api-request.ts'
import type { ApiRequest } from './_simulated-api.ts'
import { tokenFieldWriters } from './_token-field-writer.ts'
import type { ImitationName } from './simulator-options.ts'

/** A request of this process as it would be over HTTP: a chat completion, read from the client's own body if there is one. */
export function chatRequest(request: BackendRequest, imitate: ImitationName): ApiRequest {
  const asked =
    request.body === undefined ? plainRequest(request) : chatServer.read(JSON.parse(request.body.toString()))
  return new DialectApiRequest(chatServer, tokenFieldWriters[imitate], asked)
}

function plainRequest(request: BackendRequest): DialectRequest {
  const { messages, tools, toolChoice, responseFormat, parallelToolCalls, sampling, captureTokens } = request
  return {
    model: 'sim',
    messages,
    tools,
    ...(toolChoice !== undefined && { toolChoice }),
    ...(responseFormat && { responseFormat }),
    ...(parallelToolCalls !== undefined && { parallelToolCalls }),
    sampling,
    stream: true,
    includeUsage: true,
    wantsTokenIds: captureTokens,
    wantsLogprobs: captureTokens,
    untranslatable: [],
    body: {},
  }
}
