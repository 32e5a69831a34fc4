import { Ajv2020 } from 'ajv/dist/2020.js'

interface OpenApiDocument {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Described>>>>
  readonly components: {
    readonly schemas: Readonly<Record<string, { readonly properties?: Readonly<Record<string, Parameter>> }>>
  }
}

interface Parameter {
  readonly name: string
  readonly description?: string
}

interface Described {
  readonly security: readonly unknown[]
  readonly parameters?: readonly Parameter[]
  readonly requestBody?: { readonly required: boolean }
  readonly externalDocs?: { readonly url: string }
  readonly responses: Readonly<Record<string, { readonly content?: Readonly<Record<string, object>> }>>
}

type Method = 'GET' | 'POST' | 'PUT' | 'DELETE'

export interface Operation extends Described {
  readonly method: Method
  readonly path: string
}

/** An OpenAPI document that a server gave out, to hold its replies against. */
export class OpenApi {
  readonly document: OpenApiDocument
  readonly #ajv = new Ajv2020({ strict: false, validateFormats: false })

  constructor(document: unknown) {
    this.document = document as OpenApiDocument
    this.#ajv.addSchema(this.document, 'api')
  }

  get operations(): readonly Operation[] {
    return Object.entries(this.document.paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, described]) =>
        Object.assign({ method: method.toUpperCase() as Method, path }, described),
      ),
    )
  }

  /** Every reference in the document, by the name of its schema. */
  get references(): readonly string[] {
    const text = JSON.stringify(this.document)
    return Array.from(text.matchAll(/"\$ref":"#\/components\/schemas\/([^"]+)"/g), ([, name = '']) => name)
  }

  get parameters(): readonly Parameter[] {
    return this.operations.flatMap(({ parameters = [] }) => parameters)
  }

  operation(method: string, path: string): Operation {
    const found = this.operations.find((each) => each.method === method && each.path === path)
    if (!found) throw new Error(`no operation ${method} ${path}`)
    return found
  }

  /** What a reply has that the document does not say; undefined if it fits. */
  problem(operation: Operation, reply: { readonly status: number; readonly body: unknown }): unknown {
    const { method, path, responses, externalDocs } = operation
    // Another's API: what it answers is described there.
    if (externalDocs) return undefined
    const status = String(reply.status) in responses ? String(reply.status) : 'default'
    const content = responses[status]?.content
    if (!content) return `${status} is not described`
    if (!('application/json' in content) || !('schema' in content['application/json'])) return undefined
    const pointer = ['paths', path, method.toLowerCase(), 'responses', status, 'content', 'application/json', 'schema']
    const escaped = pointer.map((part) => encodeURIComponent(part.replaceAll('~', '~0').replaceAll('/', '~1')))
    const fits = this.#ajv.validate({ $ref: `api#/${escaped.join('/')}` }, reply.body)
    return fits ? undefined : this.#ajv.errorsText()
  }
}
