// Talks over Chat Completions with the official clients, and prints what they saw as JSON.  node chat.mjs URL KEY
import OpenAI from 'openai'
import { createOpenAI } from '@ai-sdk/openai'
import { generateText, jsonSchema, stepCountIs, streamText, tool } from 'ai'

const [url, apiKey] = process.argv.slice(2)
const script = (...steps) => JSON.stringify({ script: steps })
const client = new OpenAI({ baseURL: url, apiKey })
const user = (content) => [{ role: 'user', content }]
const painting = script({ say: 'First:' }, { call: { name: 'paint', input: { colour: 'red' } } }, { say: 'it is {result}' })
const parameters = { type: 'object', properties: { colour: { type: 'string' } } }
const seen = {}

const runner = client.chat.completions.runTools({
  model: 'rehearsal',
  messages: user(painting),
  stream: true,
  tools: [
    {
      type: 'function',
      function: { name: 'paint', parameters, parse: JSON.parse, function: ({ colour }) => `painted ${colour}` },
    },
  ],
})
seen.deltas = []
runner.on('content', (delta) => seen.deltas.push(delta))
seen.tools = await runner.finalContent()

const stream = client.chat.completions.stream({ model: 'rehearsal', messages: user('hello') })
seen.chunks = 0
for await (const chunk of stream) seen.chunks += chunk.choices.length
seen.stream = await stream.finalContent()

try {
  await client.chat.completions.create({ model: 'rehearsal', messages: user(script({ fail: { code: 'no_paint', message: 'Out' } })) })
} catch (error) {
  seen.failed = [error.status, error.code, error.message, typeof error.requestID]
}

const session = crypto.randomUUID()
const stopper = new AbortController()
const kept = { headers: { 'X-Dragoman-Session': session } }
const waiting = user(script({ say: 'one' }, { wait_ms: 600000 }))
const stopped = await client.chat.completions.create(
  { model: 'rehearsal', messages: waiting, stream: true },
  { ...kept, signal: stopper.signal },
)
seen.stopped = ''
for await (const chunk of stopped) {
  seen.stopped += chunk.choices[0].delta.content ?? ''
  if (seen.stopped) stopper.abort()
}
const following = [...waiting, { role: 'assistant', content: seen.stopped }, ...user('hello')]
seen.following = (await client.chat.completions.create({ model: 'rehearsal', messages: following }, kept)).choices[0].message.content

let requests = 0
const counting = (input, init) => {
  requests += 1
  return fetch(input, init)
}
const model = createOpenAI({ baseURL: url, apiKey, fetch: counting }).chat('rehearsal')
const execute = async ({ colour }) => `painted ${colour}`
const tools = { paint: tool({ inputSchema: jsonSchema(parameters), execute }) }
seen.sdkTools = (await generateText({ model, messages: user(painting), tools, stopWhen: stepCountIs(3) })).text
const streamed = streamText({ model, messages: user('hello') })
seen.sdkStream = await streamed.text
seen.sdkTokens = (await streamed.usage).totalTokens > 0
const failing = user(script({ call: { name: 'add', input: { a: 1, b: 2 } } }, { fail: { code: 'no_paint', message: 'Out' } }))
requests = 0
seen.sdkFailed = await generateText({ model, messages: failing }).catch((error) => [error.message, requests])
requests = 0
const errors = []
await streamText({ model, messages: failing, onError: ({ error }) => errors.push(error.message) }).consumeStream()
seen.sdkStreamFailed = [errors, requests]
console.log(JSON.stringify(seen))
