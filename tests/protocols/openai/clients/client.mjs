// Runs one scenario with the newest official clients, or with older ones, and prints what it saw as JSON.
// node client.mjs URL KEY SCENARIO newest|older
import { z } from 'zod'

const [url, apiKey, scenario, age] = process.argv.slice(2)
const load = (newest, older) => import(age === 'older' ? older : newest)
const { default: OpenAI } = await load('openai', 'openai6')
const { zodTextFormat } = await load('openai/helpers/zod', 'openai6/helpers/zod')
const { createOpenAI } = await load('@ai-sdk/openai', 'ai6-openai')
const { createOpenResponses } = await load('@ai-sdk/open-responses', 'ai6-open-responses')
const { generateText, jsonSchema, Output, stepCountIs, streamText, tool } = await load('ai', 'ai6')
const script = (...steps) => JSON.stringify({ script: steps })
const client = new OpenAI({ baseURL: url, apiKey, maxRetries: 0 })
const pick = { type: 'function', name: 'pick', parameters: { type: 'object', properties: {} }, strict: false }
const calls = script({ call: { name: 'pick', input: { n: 1 } } }, { say: 'got {result}' })
const stamps = script({ call: { name: 'stamp', input: { text: 'paid' } } }, { say: 'So: {result}.' })

async function javascript() {
  const seen = {}
  seen.models = (await client.models.list()).data.map((each) => each.id)
  const first = await client.responses.create({ model: 'rehearsal', input: 'one' })
  seen.text = first.output_text
  const stream = client.responses.stream({ model: 'rehearsal', input: 'recall', previous_response_id: first.id })
  seen.types = []
  for await (const event of stream) seen.types.push(event.type)
  seen.recalled = (await stream.finalResponse()).output_text
  const asked = await client.responses.create({ model: 'rehearsal', input: calls, tools: [pick] })
  const answer = { type: 'function_call_output', call_id: asked.output[0].call_id, output: 'it' }
  seen.tool = (await client.responses.create({ model: 'rehearsal', input: [answer], previous_response_id: asked.id })).output_text
  const format = zodTextFormat(z.object({ x: z.number() }), 'p')
  const parsed = await client.responses.parse({ model: 'rehearsal', input: script({ say: '{"x": 3}' }), text: { format } })
  seen.parsed = parsed.output_parsed
  let background = await client.responses.create({ model: 'rehearsal', input: 'later', background: true })
  while (['queued', 'in_progress'].includes(background.status)) background = await client.responses.retrieve(background.id)
  seen.background = background.output_text
  const conversation = await client.conversations.create({ metadata: { k: 'v' } })
  await client.responses.create({ model: 'rehearsal', input: 'one', conversation: conversation.id })
  seen.items = (await client.conversations.items.list(conversation.id, { order: 'asc' })).data.map((each) => each.role)
  seen.deleted = (await client.conversations.delete(conversation.id)).deleted
  try {
    await client.responses.create({ model: 'nix', input: 'x' })
  } catch (error) {
    seen.error = [error.status, error.code, Boolean(error.requestID)]
  }
  return seen
}

async function turns(model, options) {
  const messages = []
  const say = async (content) => {
    messages.push({ role: 'user', content })
    const result = streamText({ model, messages, stopWhen: stepCountIs(3), ...options })
    const types = new Set()
    for await (const part of result.fullStream) types.add(part.type)
    messages.push(...(await result.response).messages)
    return { text: await result.text, types: [...types], result }
  }
  const seen = {}
  seen.one = (await say('one')).text
  seen.two = (await say('two')).text
  seen.recalled = (await say('recall')).text
  seen.tool = (await say(calls)).text
  const server = await say(script({ call: { name: 'add', input: { a: 1, b: 2 } } }, { say: '{result}' }))
  seen.server = server.text
  seen.after = (await say('recall')).text.split(' | ').filter((each) => !each.startsWith('{'))
  seen.errors = server.types.includes('error')
  return seen
}

const steps = script({ call: { name: 'pick' } }, { call: { name: 'pick' } }, { say: 'got {result}' })

const own = {
  tools: {
    pick: tool({ inputSchema: jsonSchema({ type: 'object', properties: {} }), execute: async () => 'it' }),
  },
}

async function aiSdk() {
  const provider = createOpenAI({ baseURL: url, apiKey })
  const model = provider.responses('rehearsal')
  const seen = await turns(model, own)
  const first = await generateText({ model, prompt: 'first' })
  const created = await client.conversations.create()
  const places = [{ conversation: created.id }, { previousResponseId: first.providerMetadata.openai.responseId }]
  seen.loops = []
  for (const openai of places) {
    const options = { stopWhen: stepCountIs(5), providerOptions: { openai }, ...own }
    seen.loops.push((await generateText({ model, prompt: steps, ...options })).text)
  }
  const messages = [{ role: 'user', content: stamps }]
  const asked = await generateText({ model, messages })
  const request = asked.content.find((part) => part.type === 'tool-approval-request')
  messages.push(...asked.response.messages)
  const granted = { type: 'tool-approval-response', approvalId: request.approvalId, approved: true, providerExecuted: true }
  messages.push({ role: 'tool', content: [granted] })
  seen.approved = (await generateText({ model, messages })).text
  try {
    await generateText({ model, prompt: JSON.stringify({ script: [{ fail: { code: 'teapot', message: 'no coffee' } }] }), maxRetries: 0 })
  } catch (error) {
    seen.error = error.message
  }
  return seen
}

async function openResponses() {
  const provider = createOpenResponses({ name: 'dragoman', url: `${url}/responses`, apiKey })
  const seen = await turns(provider('rehearsal'), own)
  const prompt = script({ say: '{"x": 3}' })
  seen.json = (await generateText({ model: provider('rehearsal'), prompt, output: Output.json() })).output
  try {
    await generateText({ model: provider('nix'), prompt: 'x', maxRetries: 0 })
  } catch (error) {
    seen.error = error.message
  }
  return seen
}

console.log(JSON.stringify(await { javascript, aiSdk, openResponses }[scenario]()))
